package live

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// poll is how often a page that somebody looks at renews itself.
const poll = 2 * time.Second

// Listen listens on an address, 127.0.0.1:8080, which has to be on loopback; port 0 is a free one.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %q is not an address with a port, as 127.0.0.1:8080", address)
	}

	if !isLoopback(host) {
		return nil, fmt.Errorf("--listen: %q is not on loopback, and the page has no passwords: 127.0.0.1:%s; from another computer: "+
			"ssh -L %[2]s:127.0.0.1:%[2]s this-computer", address, port)
	}

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)

	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--listen: another program listens on %s already: name another port, or 127.0.0.1:0 for a free one", address)
	case err != nil:
		return nil, fmt.Errorf("--listen: unable to listen on %s: %w", address, err)
	}

	return listener, nil
}

// isLoopback reports whether a host is this computer's loopback, by address or as localhost.
func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)

	return err == nil && address.IsLoopback() || host == "localhost"
}

// Serve serves the page until the context ends. It collects while somebody looks at the page, however many do.
func (c *Collector) Serve(ctx context.Context, listener net.Listener) error {
	viewed := make(chan struct{}, 1)
	server := &http.Server{
		Handler: c.handler(viewed), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	collected := make(chan struct{})

	go func() {
		defer close(collected)

		c.collect(ctx, viewed)
	}()

	context.AfterFunc(ctx, func() { _ = server.Close() }) // no request takes long

	err := server.Serve(listener)

	cancel()
	<-collected

	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}

	return fmt.Errorf("unable to serve the page: %w", err)
}

// collect collects, waits for the interval, and then until somebody looks at the page.
func (c *Collector) collect(ctx context.Context, viewed <-chan struct{}) {
	for {
		c.Once(ctx)

		select {
		case <-ctx.Done():
			return
		case <-time.After(c.Interval):
		}

		select {
		case <-ctx.Done():
			return
		case <-viewed:
		}
	}
}

// handler serves the page at /, and what of it changes at /parts.
func (c *Collector) handler(viewed chan<- struct{}) http.Handler {
	mux := http.NewServeMux()

	for pattern, part := range map[string]string{"GET /{$}": "page", "GET /parts": "parts"} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			select {
			case viewed <- struct{}{}:
			default: // it is known
			}

			v, err := newPageView(c.Snapshot())
			if err == nil {
				v.Nonce = rand.Text()
				setHeaders(w.Header(), v.Nonce)

				err = write(w, part, v)
			}

			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}

	return onlyLoopback(mux)
}

// onlyLoopback refuses requests for another host: a name that leads here is one of a page that wants to read this one
// (DNS rebinding). The port may be another, that of a tunnel.
func onlyLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}

		if !isLoopback(strings.Trim(host, "[]")) {
			http.Error(w, fmt.Sprintf("%q is not this computer's loopback: open 127.0.0.1 or localhost", r.Host),
				http.StatusMisdirectedRequest)

			return
		}

		next.ServeHTTP(w, r)
	})
}

// setHeaders forbids everything that the page does not need, and other pages to use it.
func setHeaders(h http.Header, nonce string) {
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", fmt.Sprintf("default-src 'none'; style-src 'nonce-%s'; script-src 'nonce-%[1]s'; "+
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'", nonce))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}
