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

// publicFactory is the name under which the lab's hosts reach the lab's factory, as real ones reach the public one.
const publicFactory = "factory.talos.dev"

// maxDownload bounds a download; the lab's images are descriptions of a few hundred bytes.
const maxDownload = 1 << 20

func fetchFrom(ctx context.Context, factory netip.AddrPort, address string) ([]byte, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("unable to read the address: %w", err)
	}

	if publisher.Publishes(u) {
		content, found := publisher.Get(u)
		if !found {
			return nil, fmt.Errorf("%d %s", http.StatusNotFound, http.StatusText(http.StatusNotFound))
		}

		return content, nil
	}

	if u.Hostname() == publicFactory {
		u.Scheme, u.Host = "http", factory.String()
	}

	if ip, err := netip.ParseAddr(u.Hostname()); err != nil || !ip.IsLoopback() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: no route to host", u.Hostname())}
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("unable to ask for %s: %w", u, err)
	}

	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("unable to get %s: %w", u, err)
	}
	defer answer.Body.Close()

	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}

	return io.ReadAll(io.LimitReader(answer.Body, maxDownload))
}
