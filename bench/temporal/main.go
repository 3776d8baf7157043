// Command temporal measures Temporal on PostgreSQL for the program bench: it
// answers one request as package trial describes. It is a module of its own
// because Temporal's server is a large one.
//
// The server and the tool that makes its tables are Temporal's own programs, built
// from their module and found beside this program. One server of its own, with
// all four services in one process, serves each trial.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/belaydev/belay/bench/trial"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("temporal: ")
	if err := trial.Serve(os.Stdin, os.Stdout, map[string]trial.Func{"temporal": run}); err != nil {
		log.Fatal(err)
	}
}

// settings are what can be set and matters here.
type settings struct {
	shards  int           // numHistoryShards
	conns   int           // of the server to its database
	pollers int           // of a worker, of each kind; 0 is the SDK's own
	flight  int           // workflows at a time
	eager   bool          // the first workflow task comes with the answer to the start
	retry   time.Duration // the wait before a lost activity is tried again; 0 is a second
	text    string
}

// of are the settings of a variant. The defaults of the server are those of the
// configuration that comes with it for PostgreSQL
// (config/development-postgres12.yaml), those of workers the SDK's. What helps is
// said at docs.temporal.io/develop/worker-performance (pollers, eager starts) and
// in the guide to self-hosting (shards, connections); how much of it was found by
// trying: with more in flight, more shards or more pollers it does less on a small
// machine.
func of(v trial.Variant) settings {
	if v == trial.Tuned {
		return settings{
			shards: 16, conns: 40, pollers: 16, flight: 64, eager: true, retry: 10 * time.Millisecond,
			text: "16 history shards, 40 connections, 16 pollers of each kind, eager starts, 64 in flight",
		}
	}
	return settings{
		shards: 4, conns: 20, flight: 64,
		text: "development-postgres12.yaml (4 history shards, 20 connections), the SDK's defaults; 64 in flight",
	}
}

func run(ctx context.Context, r trial.Request) (trial.Sample, error) {
	if r.Role == "work" {
		return trial.Sample{}, work(ctx, r)
	}
	measure := map[trial.Measure]func(*bed, context.Context, trial.Request) (trial.Sample, error){
		trial.Flow: (*bed).flow, trial.Steps: (*bed).flow, trial.Latency: (*bed).latency,
		trial.Takeover: (*bed).takeover,
	}[r.Measure]
	if measure == nil {
		return trial.Sample{}, trial.ErrNone
	}
	b, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	defer b.close()
	s, err := measure(b, ctx, r)
	s.Settings = b.text
	return s, err
}
