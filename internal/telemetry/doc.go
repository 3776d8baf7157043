// Package telemetry makes metrics of an engine, in Prometheus's format.
//
// Counters and histograms of events are updated by one call per commit ([Metrics.Observe]). Gauges
// of the store's contents are counted when the metrics are scraped, at most once in several seconds
// ([Metrics.Watch]).
//
// The number of values of every label is bounded, whatever clients send: no label contains ids, and
// only the first [MaxWorkflows] names of workflows have a value of their own; all others are
// counted together as "other".
package telemetry
