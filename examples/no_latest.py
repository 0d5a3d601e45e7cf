"""A validator: an App says which version of its image it runs."""

from kubeshard import KubeObject, Manager, run
from kubeshard.webhook import Denied, Webhooks, validates


class App(KubeObject, group="example.com", version="v1"):
    image: str = ""


@validates(App)
def no_latest(app: App) -> None:
    if app.image.endswith(":latest"):
        raise Denied("say which version of the image: latest may change")


if __name__ == "__main__":
    run(Manager(servers=[Webhooks("apps", [no_latest])]))
