package trace

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// wanted reports whether the environment asks for traces, and says why it asks for traces that this package
// cannot make; "" if it does not.
func wanted(getenv func(string) string) (ok bool, why string) {
	value := func(name string) string { return strings.ToLower(strings.TrimSpace(getenv(name))) }
	first := func(names ...string) string {
		for _, name := range names {
			if v := value(name); v != "" {
				return v
			}
		}
		return ""
	}
	endpoint := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	if endpoint == "" || value("OTEL_SDK_DISABLED") == "true" {
		return false, ""
	}
	switch exporter := value("OTEL_TRACES_EXPORTER"); exporter {
	case "", "otlp":
	case "none":
		return false, ""
	default:
		return false, fmt.Sprintf("OTEL_TRACES_EXPORTER is %.40q; it can be otlp or none", exporter)
	}
	protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	if protocol != "" && protocol != "http/protobuf" {
		return false, fmt.Sprintf("OTEL_EXPORTER_OTLP_PROTOCOL is %.40q; it can be http/protobuf, to the port of the "+
			"collector for HTTP, usually 4318", protocol)
	}
	return true, ""
}

// samplerOf reads the sampler of the environment. Its decision depends only on the id of the trace and on the
// decision of the submitter, so all servers with the same environment decide alike.
func samplerOf(getenv func(string) string, log *slog.Logger) sdk.Sampler {
	name := strings.ToLower(strings.TrimSpace(getenv("OTEL_TRACES_SAMPLER")))
	share := func() sdk.Sampler {
		arg := strings.TrimSpace(getenv("OTEL_TRACES_SAMPLER_ARG"))
		if arg == "" {
			return sdk.TraceIDRatioBased(1)
		}
		ratio, err := strconv.ParseFloat(arg, 64)
		if err != nil || !(ratio >= 0 && ratio <= 1) {
			log.Warn("OTEL_TRACES_SAMPLER_ARG is no number from 0 to 1; the server samples every trace")
			ratio = 1
		}
		return sdk.TraceIDRatioBased(ratio)
	}
	switch name {
	case "always_on":
		return sdk.AlwaysSample()
	case "always_off":
		return sdk.NeverSample()
	case "traceidratio":
		return share()
	case "parentbased_always_off":
		return sdk.ParentBased(sdk.NeverSample())
	case "parentbased_traceidratio":
		return sdk.ParentBased(share())
	case "", "parentbased_always_on":
	default:
		log.Warn("the server does not know this OTEL_TRACES_SAMPLER, and uses parentbased_always_on",
			"sampler", fmt.Sprintf("%.40q", name))
	}
	return sdk.ParentBased(sdk.AlwaysSample())
}
