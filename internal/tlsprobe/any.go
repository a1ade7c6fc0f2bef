package tlsprobe

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Any waits until any of these addresses takes connections of the Talos API, and no longer than the time.
func Any(ctx context.Context, addresses []netip.Addr, within time.Duration) bool {
	return anyOf(ctx, addresses, talosPort, within)
}

func anyOf(ctx context.Context, addresses []netip.Addr, port uint16, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()

	for {
		if connects(ctx, addresses, port) {
			return true
		}

		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
}

// connects asks all at once.
func connects(ctx context.Context, addresses []netip.Addr, port uint16) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
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
