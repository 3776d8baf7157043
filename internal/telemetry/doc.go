// Package telemetry makes metrics of an engine, in the formats of Prometheus and OpenMetrics.
//
// The engine calls [Metrics.Observe] once per commit, which updates the counters and histograms of
// events; they count what this server has committed. When the metrics are scraped, the rows of the
// store are counted for the gauges, but not more often than once in several seconds
// ([Metrics.Watch]); all servers of a store have the same gauges.
//
// Every label has a bounded number of values, whatever names clients choose. No label contains ids.
// Only the first [MaxWorkflows] names of workflows have a value of their own; executions of all
// other workflows are counted together as "other". Of the queues and gates, only those with the
// most executions have a value of their own, which all servers choose alike.
//
// If the server makes traces, an exemplar of each bucket leads from a duration to the trace of an
// execution.
package telemetry
