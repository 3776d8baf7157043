// Command temporal measures Temporal on PostgreSQL for the program bench: it answers one request in
// the form of package trial. It is a separate module because Temporal's server has many
// dependencies.
//
// The server and the tool that makes its tables are Temporal's own programs, built from their
// module into the directory of this program. Each trial has its own server, with all four services
// in one process.
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

// settings are the settings that affect the results.
type settings struct {
	shards  int           // numHistoryShards in the configuration of the server
	conns   int           // connections of the server to its database
	pollers int           // pollers of each kind in a worker; 0 is the SDK's default
	flight  int           // workflows in flight at a time
	eager   bool          // the answer to the start contains the first workflow task
	retry   time.Duration // the wait before a lost activity is retried; 0 is a second
	text    string
}

// settingsOf returns the settings of a variant. The server's defaults are in the configuration that
// Temporal ships for PostgreSQL (config/development-postgres12.yaml); the defaults of workers are
// the SDK's. The settings that make Temporal faster are documented at
// docs.temporal.io/develop/worker-performance (pollers, eager starts) and in the guide to
// self-hosting (shards, connections). The values were found by trying: with more workflows in
// flight, more shards or more pollers, Temporal is slower on a small machine.
func settingsOf(v trial.Variant) settings {
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
