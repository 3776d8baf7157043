package httpapi

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/belaydev/belay"
)

// workerAddress returns the address from which a worker connects. It returns the zero Addr for a
// request that a proxy has passed on. It does not believe the address that the headers of a proxy
// name, because each worker can write such a header.
func workerAddress(r *http.Request) netip.Addr {
	if overSocket(r) { // the worker runs on this machine
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	for _, name := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Real-Ip"} {
		if len(r.Header[name]) > 0 {
			return netip.Addr{}
		}
	}
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap().WithZone("")
}

// heard tells the prober that the engine has accepted a request of a session.
func (a *api) heard(ctx context.Context, id belay.WorkerID) {
	if in, ok := ctx.Value(admittedKey{}).(*admitted); ok && a.o.Prober != nil {
		a.o.Prober.Heard(id, in.from)
	}
}

// warning adds to the warning about an opened session the reason why the server will not probe the
// session's worker.
func (a *api) warning(ctx context.Context, health, warning string) string {
	in, ok := ctx.Value(admittedKey{}).(*admitted)
	if !ok || a.o.Prober == nil || health == "" {
		return warning
	}
	why := a.o.Prober.Warning(health, in.from)
	if warning != "" && why != "" {
		return warning + "; " + why
	}
	return warning + why
}
