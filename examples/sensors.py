"""Sensors, as somebody coming from kopf would write them: with a handler, a cleanup, a timer and a daemon.

Each Sensor is a device that sends lines over TCP. Its last reading is in its status, its address in a ConfigMap, and a
condition says whether it has fallen silent. The device is notified when its Sensor is deleted.

    kubeshard crd examples/sensors.py | kubectl apply -f -
    kubeshard run examples/sensors.py
"""

import asyncio
from typing import Annotated

from kubeshard import (
    Condition,
    ConfigMap,
    Context,
    Controller,
    Daemon,
    Finalizer,
    KubeObject,
    LeaderElection,
    Manager,
    Meta,
    ObjectMeta,
    Result,
    Struct,
    Watch,
    ensure,
    field,
    when,
)


class SensorSpec(Struct):
    address: str
    """host:port"""
    patience: Annotated[float, Meta(gt=0)] = 60.0
    """Seconds without a reading after which the sensor counts as silent."""


class SensorStatus(Struct):
    reading: str | None = None
    heard: float | None = None
    conditions: tuple[Condition, ...] = ()


class Sensor(KubeObject, group="examples.kubeshard.dev", version="v1"):
    spec: SensorSpec
    status: SensorStatus = field(default_factory=SensorStatus)


async def reconcile(ctx: Context, sensor: Sensor) -> None:
    """kopf: @on.create, @on.update, @on.resume, and adopt()."""
    meta = ObjectMeta(name=f"{sensor.metadata.name}-address", namespace=sensor.metadata.namespace)
    await ensure(ctx, ConfigMap(metadata=meta, data={"address": sensor.spec.address}), owner=sensor)


async def good_bye(ctx: Context, sensor: Sensor) -> None:
    """kopf: @on.delete. A device that is already gone is not an error."""
    try:
        _, device = await connected(sensor)
    except OSError as error:
        ctx.log.warning("cannot say good-bye", address=sensor.spec.address, error=error)
        return
    device.write(b"good-bye\n")
    device.close()


async def listen(ctx: Context, sensor: Sensor) -> None:
    """kopf: @daemon. After an error, such as the end of the connection, it starts again after a delay."""
    lines, device = await connected(sensor)
    try:
        while line := await lines.readline():
            reading = line.decode(errors="replace").strip()
            await ctx.status(sensor, SensorStatus(reading=reading, heard=ctx.clock.wall()))
        raise ConnectionError(f"{sensor.spec.address} hung up")
    finally:
        device.close()


async def look(ctx: Context, sensor: Sensor) -> Result:
    """kopf: @timer."""
    heard, patience = sensor.status.heard, sensor.spec.patience
    silent = heard is None or ctx.clock.wall() - heard > patience
    heard_of = Condition(type="HeardOf", status=str(not silent), reason="Silent" if silent else "Sends")
    await ctx.status(sensor, SensorStatus(conditions=(heard_of,)))
    return Result(requeue_after=patience / 4)


async def connected(sensor: Sensor) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = sensor.spec.address.rpartition(":")
    async with asyncio.timeout(10):
        return await asyncio.open_connection(host, port)


sensors = Controller(
    name="sensor",
    reconciler=reconcile,
    primary=Sensor,
    owns=[ConfigMap],
    finalizers=[Finalizer("examples.kubeshard.dev/good-bye", good_bye)],
    daemons=[Daemon(listen, restart_on=lambda sensor: sensor.spec.address)],
)
looks = Controller(name="sensor-look", reconciler=look, primary=Watch(Sensor, when=when.generation_changed))


def manager() -> Manager:
    return Manager([sensors, looks], leader_election=LeaderElection(name="sensors"))
