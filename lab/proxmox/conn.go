package proxmox

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// largestBody is more than PVE takes for parameters, and enough for the lab's image files.
	largestBody  = 64 << 20
	idleLimit    = 60 * time.Second
	serverHeader = "pve-api-daemon/3.0"
)

// errReset says that the connection is reset instead of answered.
var errReset = errors.New("connection reset")

// serveConn speaks HTTP/1.1 itself: net/http cannot write the reason phrases in which PVE puts its errors.
func (s *Server) serveConn(raw net.Conn) {
	defer s.forget(raw)

	if s.offline(s.host) {
		reset(raw)

		return
	}

	conn := tls.Server(raw, s.tls)

	defer func() { _ = conn.Close() }()

	if err := conn.HandshakeContext(s.ctx); err != nil {
		return
	}

	in := bufio.NewReader(conn)

	for {
		_ = conn.SetReadDeadline(time.Now().Add(idleLimit))

		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}

		_ = conn.SetReadDeadline(time.Time{})

		if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
			if _, err := io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
				return
			}
		}

		body, err := io.ReadAll(io.LimitReader(req.Body, largestBody+1))
		if err != nil || len(body) > largestBody {
			return
		}

		rep, err := s.answer(req, body)
		if err != nil {
			reset(raw)

			return
		}

		keep := !req.Close && req.ProtoAtLeast(1, 1)
		if err := rep.write(conn, keep, req.Method == http.MethodHead); err != nil || !keep {
			return
		}
	}
}

// reset makes the peer see a reset rather than an end.
func reset(conn net.Conn) {
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}

	_ = conn.Close()
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
		errs := map[string]string{}
		for k, v := range r.fields {
			errs[k] = v
		}

		doc["errors"] = errs
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

func (r reply) write(w io.Writer, keep, headOnly bool) error {
	body := r.body()
	connection := "Keep-Alive"

	if !keep {
		connection = "close"
	}

	var b strings.Builder

	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", r.status, reason(r.status, r.message))
	fmt.Fprintf(
		&b, "Cache-Control: max-age=0\r\nConnection: %s\r\nDate: %s\r\n", connection,
		time.Now().UTC().Format(http.TimeFormat),
	)
	fmt.Fprintf(&b, "Pragma: no-cache\r\nServer: %s\r\nContent-Length: %s\r\n", serverHeader, strconv.Itoa(len(body)))
	b.WriteString(
		"Content-Type: application/json;charset=UTF-8\r\nExpires: " + time.Now().UTC().Format(http.TimeFormat) + "\r\n\r\n",
	)

	out := []byte(b.String())
	if !headOnly {
		out = append(out, body...)
	}

	_, err := w.Write(out)

	return err
}

// reason is the first line of the error's text, as PVE writes it into the status line.
func reason(status int, message string) string {
	if message == "" {
		if t := http.StatusText(status); t != "" {
			return t
		}

		return "unknown"
	}

	line, _, _ := strings.Cut(message, "\n")

	return line
}
