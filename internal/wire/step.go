package wire

import "github.com/belaydev/belay"

// StepReport is a step or wait that a worker reports.
type StepReport struct {
	Kind       belay.CheckpointKind `json:"kind" doc:"step or wait."`
	Name       string               `json:"name" doc:"The name under which the step's result is saved. A long name is cut."`
	Attempt    int                  `json:"attempt,omitempty" doc:"The number of the try within its run, from 1."`
	AgoMS      int64                `json:"ago_ms" doc:"How long ago the try began."`
	Over       bool                 `json:"over,omitempty" doc:"The try has ended."`
	DurationMS int64                `json:"duration_ms,omitempty" doc:"How long the try took, if it has ended."`
	Error      string               `json:"error,omitempty" doc:"The error with which the try has ended; 200 bytes are kept."`
}

func reportsOf(in []belay.StepReport) []StepReport {
	if len(in) == 0 {
		return nil
	}
	out := make([]StepReport, len(in))
	for i, s := range in {
		out[i] = StepReport{s.Kind, s.Name, s.Attempt, Millis(s.Ago), s.Over, Millis(s.Took), s.Error}
	}
	return out
}

func reports(in []StepReport) []belay.StepReport {
	if len(in) == 0 {
		return nil
	}
	out := make([]belay.StepReport, len(in))
	for i, s := range in {
		out[i] = belay.StepReport{
			Kind: s.Kind, Name: s.Name, Attempt: s.Attempt, Ago: Duration(s.AgoMS), Over: s.Over,
			Took: Duration(s.DurationMS), Error: s.Error,
		}
	}
	return out
}
