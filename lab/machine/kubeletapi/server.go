// Package kubeletapi is the API of a node's kubelet, through which the API server fetches logs of containers and runs
// commands in them. Like Talos' kubelet, it delegates authentication and authorization to the API server.
package kubeletapi

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	remotecommandconsts "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"talos-proxmox/lab/machine/container"
)

// Containers are the containers of a node.
type Containers interface {
	// CopyLog writes the log of a container.
	CopyLog(ctx context.Context, of ContainerName, o corev1.PodLogOptions, w io.Writer) error
	// Exec runs a command in a container and returns its exit status.
	Exec(ctx context.Context, in ContainerName, command []string, s container.Streams) (int, error)
	// Attach connects streams to a container's own process until it exits.
	Attach(ctx context.Context, to ContainerName, s container.Streams) error
}

// ContainerName identifies a container on a node.
type ContainerName struct{ Namespace, Pod, Container string }

// NotFoundError is returned if the node has no such pod or container.
type NotFoundError struct{ Text string }

// Error implements error.
func (e NotFoundError) Error() string { return e.Text }

// idleTimeout is how long a stream without traffic stays open.
const idleTimeout = 4 * time.Hour

// NewHandler returns the handler of the kubelet's API. Client certificates of the authorities authenticate users.
func NewHandler(c Containers, authorities func() *x509.CertPool, reviewer Reviewer) http.Handler {
	s := server{c}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.logs)

	for _, method := range []string{http.MethodGet, http.MethodPost} {
		mux.HandleFunc(method+" /exec/{namespace}/{pod}/{container}", s.exec)
		mux.HandleFunc(method+" /attach/{namespace}/{pod}/{container}", s.attach)
	}

	return authHandler{authorities, reviewer, mux}
}

type server struct{ containers Containers }

func containerName(r *http.Request) ContainerName {
	return ContainerName{r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")}
}

func (s server) logs(w http.ResponseWriter, r *http.Request) {
	options, err := logOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)

		return
	}

	out := &flusher{w: w}

	if options.Follow {
		out.flush() // shows the client that it is connected
	}

	switch err := s.containers.CopyLog(r.Context(), containerName(r), options, out); {
	case err == nil || out.wrote:
	case errors.As(err, new(NotFoundError)):
		http.Error(w, err.Error(), http.StatusNotFound)
	default:
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// flusher flushes after every write.
type flusher struct {
	w     http.ResponseWriter
	wrote bool
}

// Write implements io.Writer.
func (f *flusher) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	f.flush()

	return n, err
}

func (f *flusher) flush() {
	f.wrote = true
	_ = http.NewResponseController(f.w).Flush() // best effort: without it the text arrives later
}

// logOptions parses the options of a request, which the API server has validated.
func logOptions(r *http.Request) (o corev1.PodLogOptions, err error) {
	var failures []error

	for name, flag := range map[string]*bool{
		"follow": &o.Follow, "timestamps": &o.Timestamps, "previous": &o.Previous,
	} {
		*flag = r.FormValue(name) == "true"
	}

	for name, number := range map[string]**int64{
		"tailLines": &o.TailLines, "limitBytes": &o.LimitBytes, "sinceSeconds": &o.SinceSeconds,
	} {
		if text := r.FormValue(name); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			failures = append(failures, err)
			*number = &n
		}
	}

	if text := r.FormValue("sinceTime"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		failures = append(failures, err)
		o.SinceTime = &metav1.Time{Time: at}
	}

	return o, errors.Join(failures...)
}

func (s server) exec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)

		return
	}

	name := containerName(r)
	command := r.URL.Query()[corev1.ExecCommandParam]
	remotecommand.ServeExec(w, r, session{s.containers, name}, name.Pod, "", name.Container, command, options, idleTimeout,
		remotecommandconsts.DefaultStreamCreationTimeout, remotecommandconsts.SupportedStreamingProtocols)
}

func (s server) attach(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)

		return
	}

	name := containerName(r)
	remotecommand.ServeAttach(w, r, session{s.containers, name}, name.Pod, "", name.Container, options, idleTimeout,
		remotecommandconsts.DefaultStreamCreationTimeout, remotecommandconsts.SupportedStreamingProtocols)
}

// session connects a client with a container. It implements remotecommand.Executor and Attacher.
type session struct {
	containers Containers
	name       ContainerName
}

// ExecInContainer implements remotecommand.Executor.
func (s session) ExecInContainer(
	ctx context.Context, _, _, _ string, command []string, in io.Reader, out, err io.WriteCloser,
	tty bool, _ <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	status, failure := s.containers.Exec(ctx, s.name, command, streams(in, out, err, tty))

	switch {
	case errors.Is(failure, container.ErrNotFound):
		return fmt.Errorf("failed to exec in container: failed to start exec: OCI runtime exec failed: exec failed: "+
			"unable to start container process: %w: unknown", failure)
	case failure == nil && status != 0:
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", status), Code: status}
	default:
		return failure
	}
}

// AttachContainer implements remotecommand.Attacher.
func (s session) AttachContainer(
	ctx context.Context, _, _, _ string, in io.Reader, out, err io.WriteCloser, tty bool,
	_ <-chan remotecommand.TerminalSize,
) error {
	return s.containers.Attach(ctx, s.name, streams(in, out, err, tty))
}

// streams converts a client's streams. A terminal sends carriage returns, and shows what is echoed.
func streams(in io.Reader, out, err io.WriteCloser, tty bool) container.Streams {
	s := container.Streams{Stdin: in, Stdout: io.Discard, Stderr: io.Discard, TTY: tty}

	if out != nil {
		s.Stdout = out
	}

	if err != nil {
		s.Stderr = err
	}

	if tty {
		s.Stdout = terminalOut{s.Stdout}
		s.Stderr = s.Stdout

		if in != nil {
			s.Stdin = terminalIn{in, s.Stdout}
		}
	}

	return s
}
