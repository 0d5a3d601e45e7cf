"""Turns objects into table rows: the columns that `kubectl get` prints. Pure."""

from kubeshard_apiserver.printing.columns import Column, Printer
from kubeshard_apiserver.printing.custom import custom_printer
from kubeshard_apiserver.printing.printers import printer_of

__all__ = ["Column", "Printer", "custom_printer", "printer_of"]
