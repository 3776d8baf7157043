// Package telemetry makes metrics of an engine, in Prometheus's format.
//
// The engine calls [Metrics.Observe] once per commit, which updates the counters and histograms of
// events. The gauges of the store's contents are counted when the metrics are scraped, but not more
// often than once in several seconds ([Metrics.Watch]).
//
// The number of values of every label is bounded, whatever clients send. No label contains ids.
// Only the first [MaxWorkflows] names of workflows have a value of their own; executions of all
// other workflows are counted together as "other".
package telemetry
