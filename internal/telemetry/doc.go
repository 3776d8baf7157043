// Package telemetry makes metrics of an engine, in Prometheus's format.
//
// What happens is counted as it happens, from one call per commit
// ([Metrics.Observe]); what there is is counted when somebody asks, and at most
// every few seconds ([Metrics.Watch]).
//
// Every label has few values, whatever clients send: no ids, and of the names of
// workflows the first [MaxWorkflows]; the others are counted together as
// "other".
package telemetry
