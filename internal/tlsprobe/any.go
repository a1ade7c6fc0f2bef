package tlsprobe

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// AnyReachable waits until any of these addresses accepts connections to the Talos API, and reports whether one does in
// time.
func AnyReachable(ctx context.Context, addresses []netip.Addr, within time.Duration) bool {
	return waitForAny(ctx, addresses, talosPort, within)
}

func waitForAny(ctx context.Context, addresses []netip.Addr, port uint16, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()

	for {
		if anyConnects(ctx, addresses, port) {
			return true
		}

		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return false
		}
	}
}

// anyConnects tries all addresses in parallel.
func anyConnects(ctx context.Context, addresses []netip.Addr, port uint16) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()

	found := make(chan bool, len(addresses))

	var wg sync.WaitGroup
	for _, address := range addresses {
		wg.Go(func() {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", netip.AddrPortFrom(address, port).String())
			if err == nil {
				_ = conn.Close()

				found <- true

				cancel() // one is enough
			}
		})
	}

	wg.Wait()

	return len(found) > 0
}
