// Package telemetry makes metrics of an engine, in Prometheus's format.
//
// The engine calls [Metrics.Observe] once per commit, which updates the counters and histograms of
// events. When the metrics are scraped, the rows of the store are counted for the gauges, but not
// more often than once in several seconds ([Metrics.Watch]).
//
// Every label has a bounded number of values, whatever names clients choose. No label contains ids.
// Only the first [MaxWorkflows] names of workflows have a value of their own; executions of all
// other workflows are counted together as "other".
package telemetry
