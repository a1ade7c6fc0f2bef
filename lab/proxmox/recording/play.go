package recording

import (
	"compress/gzip"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// discFile is the file that the file server serves.
var discFile = []byte(strings.Repeat("talos-proxmox recording\n", 1<<10))

// API is a Proxmox VE API to record.
type API struct {
	// Endpoint is https://HOST:8006, Token "USER!NAME=SECRET" of a user with all privileges.
	Endpoint, Token string
	Place           Place
	// Client verifies the certificate as the caller wants.
	Client *http.Client
	// Poll is the interval for polling a task, Settle how long a host needs to report its state to the cluster.
	Poll, Settle time.Duration

	tokensByName map[string]string // "ID=SECRET"
	ticket, csrf string
	web          string
	lastTask     string
}

// serveFiles serves files for downloads on the local address from which the API is reached.
func (a *API) serveFiles(ctx context.Context) (stop func(), err error) {
	endpoint, err := url.Parse(a.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("unable to read the endpoint: %w", err)
	}

	probe, err := new(net.Dialer).DialContext(ctx, "udp", endpoint.Host)
	if err != nil {
		return nil, fmt.Errorf("unable to find the way to %s: %w", endpoint.Host, err)
	}
	defer probe.Close() //nolint:errcheck // nothing was sent

	host, _, _ := net.SplitHostPort(probe.LocalAddr().String()) //nolint:errcheck // always HOST:PORT

	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("unable to serve files to the API: %w", err)
	}

	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(serveFile)}

	go func() { _ = server.Serve(ln) }() //nolint:errcheck // ends with Close

	a.web = "http://" + ln.Addr().String()

	return func() { _ = server.Close() }, nil //nolint:errcheck // no longer needed
}

// serveFile serves the files that the calls download.
func serveFile(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/rec-disc.iso", "/rec-disc.qcow2":
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(discFile)))
		_, _ = w.Write(discFile) //nolint:errcheck // the task reports it
	case "/rec-disc.img.gz":
		z := gzip.NewWriter(w)
		_, _ = z.Write(discFile) //nolint:errcheck // as above
		_ = z.Close()            //nolint:errcheck // as above
	default:
		http.NotFound(w, r)
	}
}

// Play makes all calls and returns the answers.
func (a *API) Play(ctx context.Context) ([]Answer, error) {
	stop, err := a.serveFiles(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()

	a.tokensByName = map[string]string{}
	normal := newNormaliser(a.Place, a.Token, a.web)

	var answers []Answer

	for _, c := range calls() {
		sent, err := c.expand(a.Place, a.web, url.PathEscape(a.lastTask))
		if err != nil {
			return answers, err
		}

		if c.hasFlag("settled") {
			err = wait(ctx, a.Settle)
		}

		var r response
		if err == nil {
			r, err = a.send(ctx, sent)
		}

		if err != nil {
			return answers, fmt.Errorf("%s: %w", c.line, err)
		}

		a.storeCredentials(r.Data)

		answer := Answer{Call: c.line, Status: r.status, Reason: normal.text(r.reason), NoBody: len(r.body) == 0}

		for name, complaint := range r.Errors {
			if answer.Errors == nil {
				answer.Errors = map[string]string{}
			}

			answer.Errors[name] = normal.text(fmt.Sprint(complaint))
		}

		if upid, ok := r.Data.(string); ok && strings.HasPrefix(upid, "UPID:") {
			a.lastTask = upid

			if answer.Task, err = a.waitTask(ctx, upid); err != nil {
				return answers, fmt.Errorf("%s: %w", c.line, err)
			}

			answer.Task = strings.TrimSpace(normal.text(answer.Task))
		}

		switch {
		case c.hasFlag("shape") && r.status == http.StatusOK:
			answer.Data = shape(r.Data)
		case c.hasFlag("all"):
			answer.Data = normal.value(r.Data)
		default:
			answer.Data = normal.value(filterOwn(r.Data))
		}

		answers = append(answers, answer)
	}

	return answers, nil
}

// storeCredentials stores the secret of a new token, or a ticket.
func (a *API) storeCredentials(data any) {
	o, _ := data.(map[string]any)
	id, _ := o["full-tokenid"].(string)
	secret, _ := o["value"].(string)

	if _, name, ok := strings.Cut(id, "!"); ok {
		a.tokensByName[name] = id + "=" + secret
	}

	if ticket, ok := o["ticket"].(string); ok {
		a.ticket = ticket
		a.csrf, _ = o["CSRFPreventionToken"].(string)
	}
}

// waitTask waits for a task and returns its exit status.
func (a *API) waitTask(ctx context.Context, upid string) (string, error) {
	path := "/nodes/" + strings.Split(upid, ":")[1] + "/tasks/" + url.PathEscape(upid) + "/status"

	for {
		r, err := a.send(ctx, call{method: http.MethodGet, path: path})
		if err != nil {
			return "", err
		}

		o, _ := r.Data.(map[string]any)
		if r.status != http.StatusOK {
			return "", fmt.Errorf("unable to read task %s: %s", upid, r.reason)
		}

		if o["status"] == "stopped" {
			return fmt.Sprint(o["exitstatus"]), nil
		}

		if err := wait(ctx, a.Poll); err != nil {
			return "", err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
