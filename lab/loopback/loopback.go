// Package loopback keeps the lab's clients on this computer: they dial no other address, whatever a stack file, the
// environment or a state contains.
package loopback

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// Dial connects as a [net.Dialer] does, and refuses addresses of other computers before it sends a packet.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 30 * time.Second, Control: refuse}

	return dialer.DialContext(ctx, network, address)
}

// refuse gets the address after name resolution.
func refuse(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !to.Addr().Unmap().IsLoopback() {
		return fmt.Errorf(
			"%s is not on loopback, and the lab reaches nothing else: run this stack with pulumi on its own Proxmox", address,
		)
	}

	return nil
}

// Transport returns HTTP's default transport with [Dial], and without proxies.
func Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext, t.Proxy = Dial, nil

	return t
}
