package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"

	"talos-proxmox/lab/publisher"
)

// publicFactory is the name by which the lab's hosts reach the lab's factory, as real hosts reach the public one.
const publicFactory = "factory.talos.dev"

// maxDownload bounds a download; the lab's images are descriptions of a few hundred bytes.
const maxDownload = 1 << 20

// fetch downloads a file for a host. The lab's hosts reach only the lab's own Image Factory, which also answers for the
// public one's name.
func (s *Server) fetch(ctx context.Context, address string) ([]byte, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("unable to read the address: %w", err)
	}

	if err := s.reachOfHosts(address); err != nil {
		return nil, err
	}

	if publisher.Publishes(u) {
		content, found := publisher.Get(u)
		if !found {
			return nil, fmt.Errorf("%d %s", http.StatusNotFound, http.StatusText(http.StatusNotFound))
		}

		return content, nil
	}

	if u.Hostname() == publicFactory {
		factory := netip.AddrPortFrom(nth(s.network.hosts, 2), uint16(s.id.Ports["factory"]))
		u.Scheme, u.Host = "http", factory.String()
	}

	if ip, err := netip.ParseAddr(u.Hostname()); err != nil || !ip.IsLoopback() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: no route to host", u.Hostname())}
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("unable to request %s: %w", u, err)
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("unable to get %s: %w", u, err)
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}

	return io.ReadAll(io.LimitReader(response.Body, maxDownload))
}
