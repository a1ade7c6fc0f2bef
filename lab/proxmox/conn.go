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

	"talos-proxmox/lab/datacentre"
)

const (
	// largestBody is more than PVE takes for parameters, and enough for the lab's image files.
	largestBody  = 64 << 20
	serverHeader = "pve-api-daemon/3.0"
)

// errReset says that the connection is reset instead of answered.
var errReset = errors.New("connection reset")

// listener accepts connections with TLS.
type listener struct {
	net.Listener
	tls *tls.Config
}

// Accept waits for the next connection.
func (l listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}

	return &conn{Conn: tls.Server(raw, l.tls), raw: raw}, nil
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
	if t, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
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

	data, err := s.answer(req, body)
	if errors.Is(err, errReset) {
		Reset(c.raw)
		panic(http.ErrAbortHandler)
	}

	status, doc := http.StatusOK, object{"data": data}
	if list, ok := data.(listing); ok {
		doc["data"], doc["total"] = list.rows, list.total
	}

	if err != nil {
		e := datacentre.Refuse("%s", err)
		_ = errors.As(err, &e)

		doc = object{"data": nil, "message": e.Message + "\n"}
		if status = e.Status; len(e.Fields) > 0 {
			doc["errors"] = e.Fields
		}

		if e.Bare {
			doc = nil
		}

		// The first line of the error's text is the reason phrase.
		c.phrase, _, _ = strings.Cut(e.Message, "\n")
	}

	w.Header().Set("Server", serverHeader)
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.WriteHeader(status)

	if doc != nil {
		_ = json.NewEncoder(w).Encode(doc)
	}
}
