module github.com/belaydev/belay/bench/temporal

go 1.26.0

require (
	go.temporal.io/sdk v1.50.0
	go.temporal.io/server v1.32.0
)
