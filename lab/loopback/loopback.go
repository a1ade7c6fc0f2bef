// Package loopback keeps the lab's clients on this computer: whatever a stack file, the environment or a state says,
// nothing else is dialled.
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

// Dial connects as a [net.Dialer] does, and refuses every address that is not this computer's own before a packet is
// sent.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 30 * time.Second, Control: refuse}

	return dialer.DialContext(ctx, network, address)
}

// refuse sees the address after its name was looked up.
func refuse(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !to.Addr().Unmap().IsLoopback() {
		return fmt.Errorf(
			"%s is not on loopback, and the lab reaches nothing else: run this stack with pulumi on its own Proxmox", address,
		)
	}

	return nil
}

// Transport returns HTTP's default transport with [Dial] in place of the dialer, and without proxies.
func Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext, t.Proxy = Dial, nil

	return t
}
