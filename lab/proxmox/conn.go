package proxmox

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
)

const (
	// largestBody is more than PVE takes for parameters, and enough for the lab's image files.
	largestBody  = 64 << 20
	serverHeader = "pve-api-daemon/3.0"
)

// errReset says that the connection is reset instead of answered.
var errReset = errors.New("connection reset")

// listener accepts connections for a host that is there, and resets the others.
type listener struct {
	net.Listener
	s *Server
}

// Accept waits for the next connection.
func (l listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}

		if !l.s.offline(l.s.host) {
			return &conn{Conn: tls.Server(raw, l.s.tls), raw: raw}, nil
		}

		Reset(raw)
	}
}

// conn is a connection that writes the reason phrases in which PVE puts its errors: net/http knows only its own.
type conn struct {
	net.Conn
	raw net.Conn
	// phrase is that of the answer that is about to be written.
	phrase string
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Write writes what net/http has of an answer, which begins with the status line.
func (c *conn) Write(b []byte) (int, error) {
	line, rest, _ := bytes.Cut(b, []byte("\r\n"))
	if c.phrase == "" || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return c.Conn.Write(b)
	}

	version, _, _ := bytes.Cut(line[len("HTTP/1.1 "):], []byte(" "))
	out := string(line[:len("HTTP/1.1 ")]) + string(version) + " " + c.phrase + "\r\n" + string(rest)
	c.phrase = ""

	if _, err := io.WriteString(c.Conn, out); err != nil {
		return 0, err
	}

	return len(b), nil
}

// Reset makes the peer see a reset rather than an end.
func Reset(conn net.Conn) {
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}

	_ = conn.Close()
}

// ServeHTTP answers a call.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.done.Add(1)
	defer s.done.Done()

	c, _ := req.Context().Value(connKey{}).(*conn)

	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, largestBody))
	if err != nil {
		panic(http.ErrAbortHandler)
	}

	rep, err := s.answer(req, body)
	if err != nil {
		Reset(c.raw)
		panic(http.ErrAbortHandler)
	}

	// The first line of the error's text is the reason phrase.
	c.phrase, _, _ = strings.Cut(rep.message, "\n")

	w.Header().Set("Server", serverHeader)
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.WriteHeader(rep.status)
	_, _ = w.Write(rep.body()) //nolint:gosec // JSON, as its type says
}

// reply is an answer before it is written.
type reply struct {
	status  int
	message string
	data    any
	fields  map[string]string
	total   *int
	// bare answers have no body.
	bare bool
}

func (r reply) body() []byte {
	if r.bare {
		return nil
	}

	doc := map[string]any{"data": r.data}

	if r.status >= http.StatusBadRequest {
		doc["message"] = r.message + "\n"
	}

	if len(r.fields) > 0 {
		doc["errors"] = r.fields
	}

	if r.total != nil {
		doc["total"] = *r.total
	}

	b, err := json.Marshal(doc)
	if err != nil { // A handler returned what JSON cannot say: a programming error.
		panic(err)
	}

	return b
}
