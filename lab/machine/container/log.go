package container

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// maxLogLines is how many lines of a container are kept.
const maxLogLines = 10000

// Log is the output of a container. The zero value is an empty log.
type Log struct {
	mu      sync.Mutex
	lines   []line
	dropped int // number of lines dropped from the front
	partial []byte
	closed  bool
	changed chan struct{}
}

type line struct {
	at   time.Time
	text []byte
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.partial = append(l.partial, b...)

	for {
		text, rest, found := bytes.Cut(l.partial, []byte("\n"))
		if !found {
			break
		}

		l.add(bytes.Clone(text))
		l.partial = bytes.Clone(rest)
	}

	l.fire()

	return len(b), nil
}

func (l *Log) add(text []byte) {
	l.lines = append(l.lines, line{time.Now(), append(text, '\n')})

	if surplus := len(l.lines) - maxLogLines; surplus > 0 {
		l.lines, l.dropped = l.lines[surplus:], l.dropped+surplus
	}
}

// Close ends the log, and with it every Copy that follows it.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()

	if len(l.partial) > 0 {
		l.add(l.partial)
		l.partial = nil
	}

	l.closed = true
	l.fire()
}

func (l *Log) fire() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Copy writes the log; with Follow, until it is closed.
func (l *Log) Copy(ctx context.Context, w io.Writer, o corev1.PodLogOptions) error {
	limited := &limitedWriter{w: w, left: -1}
	if o.LimitBytes != nil {
		limited.left = *o.LimitBytes
	}

	var since time.Time

	switch {
	case o.SinceSeconds != nil:
		since = time.Now().Add(-time.Duration(*o.SinceSeconds) * time.Second)
	case o.SinceTime != nil:
		since = o.SinceTime.Time
	}

	next := 0

	l.mu.Lock()
	if o.TailLines != nil {
		next = l.dropped + max(0, len(l.lines)-int(*o.TailLines))
	}
	l.mu.Unlock()

	for {
		l.mu.Lock()
		next = max(next, l.dropped)
		lines := l.lines[min(next-l.dropped, len(l.lines)):]
		next, o.Follow = l.dropped+len(l.lines), o.Follow && !l.closed

		if l.changed == nil {
			l.changed = make(chan struct{})
		}

		changed := l.changed
		l.mu.Unlock()

		for _, entry := range lines {
			if entry.at.Before(since) {
				continue
			}

			if err := entry.write(limited, o.Timestamps); err != nil || limited.left == 0 {
				return err
			}
		}

		if !o.Follow {
			return nil
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (l line) write(w io.Writer, timestamp bool) error {
	text := l.text
	if timestamp {
		text = append(fmt.Appendf(nil, "%s ", l.at.UTC().Format(time.RFC3339Nano)), text...)
	}

	_, err := w.Write(text)

	return err
}

// limitedWriter discards everything after a number of bytes; -1 = unlimited.
type limitedWriter struct {
	w    io.Writer
	left int64
}

// Write implements io.Writer.
func (l *limitedWriter) Write(b []byte) (int, error) {
	part := b
	if l.left >= 0 {
		part = b[:min(int64(len(b)), l.left)]
		l.left -= int64(len(part))
	}

	_, err := l.w.Write(part)

	return len(b), err
}
