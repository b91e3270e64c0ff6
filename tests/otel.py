"""What an OpenTelemetry SDK has collected, as plain numbers."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

Attributes = frozenset[tuple[str, Any]]


class Collected:
    """A meter, and what was recorded with it."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider(metric_readers=[self._reader])
        self.meter = self._provider.get_meter("test")

    def __call__(self) -> dict[str, dict[Attributes, Any]]:
        """Name of each instrument to its data point for each set of attributes."""
        data = self._reader.get_metrics_data()
        found: dict[str, dict[Attributes, Any]] = {}
        if data is None:
            return found
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found[metric.name] = {
                        frozenset((point.attributes or {}).items()): point
                        for point in metric.data.data_points
                    }
        return found

    def units(self) -> dict[str, str]:
        """Unit of each instrument that has recorded something."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: metric.unit or ""
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def value(self, name: str, **of: str) -> Any:
        """Sum of a counter over the data points with these attributes ("scope" for "pravega.scope")."""
        return sum(point.value for point in self.points(name, **of))

    def points(self, name: str, **of: str) -> list[Any]:
        """Data points of an instrument with these attributes."""
        wanted = {(_FULL.get(key, key), value) for key, value in of.items()}
        return [point for attributes, point in self().get(name, {}).items() if wanted <= attributes]

    def close(self) -> None:
        """End it."""
        self._provider.shutdown()


_FULL = {
    "scope": "pravega.scope",
    "stream": "pravega.stream",
    "role": "pravega.client.role",
    "method": "rpc.method",
    "error": "error.type",
}
