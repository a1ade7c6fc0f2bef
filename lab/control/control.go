// Package control connects the lab's commands with a running lab: HTTP over a socket in the lab's folder, which only
// its owner can open.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/machine"
	"talos-proxmox/lab/server"
)

// socketName is the socket's name in the lab's folder.
const socketName = "control.sock"

// ErrNotRunning is returned when no lab runs in the folder.
var ErrNotRunning = errors.New("no lab runs here; `.bin/lab start` starts it")

// Status is the status of a running lab.
type Status struct {
	PID        int
	Started    time.Time
	Network    string
	Speed      float64
	Kubernetes string
	Connection server.Connection
	Hosts      []datacentre.Host
	VMs        []datacentre.VM
	Machines   []machine.MachineStatus
	Tasks      int // under way
}

// Serve answers the lab's commands until the context ends or a command stops the lab.
func Serve(ctx context.Context, dir string, lab *server.Server, status Status) error {
	ln, err := listen(ctx, dir)
	if err != nil {
		return err
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()

	srv := &http.Server{Handler: handler(lab, status, stop), ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan struct{})

	go func() {
		<-ctx.Done()

		// The response to the stop command is still pending.
		grace, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()

		_ = srv.Shutdown(grace)

		close(stopped)
	}()

	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("unable to serve the lab's socket: %w", err)
	}

	<-stopped // Serve returns as soon as a shutdown begins

	return nil
}

func listen(ctx context.Context, dir string) (net.Listener, error) {
	if _, err := NewClient(dir).Status(ctx); err == nil {
		return nil, fmt.Errorf("a lab already runs in %s", dir)
	}

	path := socketPath(dir)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("unable to remove the socket of a dead lab: %w", err)
	}

	old := syscall.Umask(0o077)
	ln, err := net.Listen("unix", path)

	syscall.Umask(old)

	if err != nil {
		return nil, fmt.Errorf("unable to open the lab's socket %s: %w", path, err)
	}

	return ln, nil
}

// socketPath prefers the relative path: a socket's path is limited to about 100 bytes.
func socketPath(dir string) string {
	path := filepath.Join(dir, socketName)

	if cwd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(cwd, path); err == nil && len(rel) < len(path) {
			return rel
		}
	}

	return path
}

func handler(lab *server.Server, status Status, stop func()) http.Handler {
	mux := http.NewServeMux()

	handle(mux, "GET /status", func(*http.Request, struct{}) (any, error) {
		now := status
		now.Hosts, now.VMs, now.Machines = lab.Data.Hosts(), lab.Data.VMs(), lab.Machines.Status()

		for _, task := range lab.Data.Tasks() {
			if task.Running() {
				now.Tasks++
			}
		}

		return now, nil
	})
	handle(mux, "POST /stop", func(*http.Request, struct{}) (any, error) {
		stop()

		return nil, nil
	})
	handle(mux, "GET /faults", func(*http.Request, struct{}) (any, error) { return lab.Data.Faults(), nil })
	handle(mux, "POST /faults", func(_ *http.Request, f datacentre.Fault) (any, error) { return lab.Data.AddFault(f) })
	handle(mux, "DELETE /faults", func(_ *http.Request, ids []int) (any, error) {
		return nil, lab.Data.ClearFaults(ids...)
	})
	handle(mux, "POST /hosts/{name}/reboot", func(r *http.Request, _ struct{}) (any, error) {
		return nil, lab.Data.RebootHost(r.PathValue("name"))
	})
	handle(mux, "POST /hosts/{name}/change", func(r *http.Request, change datacentre.HostChange) (any, error) {
		return nil, lab.Data.ChangeHost(r.PathValue("name"), change)
	})
	handle(mux, "POST /hosts/{name}/disk", func(r *http.Request, state string) (any, error) {
		return nil, lab.Data.SetHostDisk(r.PathValue("name"), state)
	})
	handle(mux, "POST /reservations", func(_ *http.Request, list []engine.Reservation) (any, error) {
		for _, reservation := range list {
			lab.Data.Reserve(reservation.MAC, reservation.Address)
		}

		return nil, nil
	})

	return mux
}

// handle registers a handler whose input and output are JSON; null is no input.
func handle[In any](mux *http.ServeMux, pattern string, do func(*http.Request, In) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var (
			in  In
			out any
		)

		err := json.NewDecoder(r.Body).Decode(&in)
		if err == nil {
			out, err = do(r, in)
		}

		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)

			return
		}

		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	})
}

// Client is a client of the lab in a folder.
type Client struct{ http *http.Client }

// NewClient returns a client of the lab in the folder, running or not.
func NewClient(dir string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socketPath(dir))
	}

	return &Client{http: &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Status returns the lab's status; ErrNotRunning if no lab runs.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status

	return s, c.call(ctx, http.MethodGet, "/status", nil, &s)
}

// Stop lets the lab save its state and exit.
func (c *Client) Stop(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/stop", nil, nil)
}

// Faults lists the active faults.
func (c *Client) Faults(ctx context.Context) ([]datacentre.Fault, error) {
	var list []datacentre.Fault

	return list, c.call(ctx, http.MethodGet, "/faults", nil, &list)
}

// AddFault adds a fault and returns its number.
func (c *Client) AddFault(ctx context.Context, fault datacentre.Fault) (int, error) {
	var id int

	return id, c.call(ctx, http.MethodPost, "/faults", fault, &id)
}

// ClearFaults removes the faults with these numbers; all of them without numbers.
func (c *Client) ClearFaults(ctx context.Context, ids ...int) error {
	return c.call(ctx, http.MethodDelete, "/faults", ids, nil)
}

// RebootHost reboots a host; it returns at once.
func (c *Client) RebootHost(ctx context.Context, host string) error {
	return c.call(ctx, http.MethodPost, "/hosts/"+url.PathEscape(host)+"/reboot", nil, nil)
}

// ChangeHost changes a host's hardware at its next boot.
func (c *Client) ChangeHost(ctx context.Context, host string, change datacentre.HostChange) error {
	return c.call(ctx, http.MethodPost, "/hosts/"+url.PathEscape(host)+"/change", change, nil)
}

// SetHostDisk makes a host's root file system "full" or "read-only", or with an empty state normal again.
func (c *Client) SetHostDisk(ctx context.Context, host, state string) error {
	return c.call(ctx, http.MethodPost, "/hosts/"+url.PathEscape(host)+"/disk", state, nil)
}

// Reserve adds reservations to the lab's DHCP server.
func (c *Client) Reserve(ctx context.Context, list []engine.Reservation) error {
	return c.call(ctx, http.MethodPost, "/reservations", list, nil)
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("unable to write the request: %w", err)
	}

	request, err := http.NewRequestWithContext(ctx, method, "http://lab"+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("unable to call the lab: %w", err)
	}

	response, err := c.http.Do(request)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			return ErrNotRunning
		}

		return fmt.Errorf("unable to call the lab: %w", err)
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		message, _ := io.ReadAll(io.LimitReader(response.Body, 1<<12))

		return fmt.Errorf("the lab refused: %s", bytes.TrimSpace(message))
	}

	if out == nil {
		return nil
	}

	if err := json.NewDecoder(response.Body).Decode(out); err != nil {
		return fmt.Errorf("unable to read the lab's answer: %w", err)
	}

	return nil
}
