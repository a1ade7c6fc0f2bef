package machine

import (
	"context"
	"encoding/json"
	"net"
	"net/url"
	"time"

	"talos-proxmox/lab/machine/journal"
)

// logRetry is how long Talos waits before it sends to a destination again (KmsgLogDeliveryController).
const logRetry = time.Second

// logDestination is where a machine sends its console's lines; Talos has all of them in the kernel's log and in that of
// the service machined.
type logDestination struct {
	url string
	// tags are in all lines of the service; nil = the kernel's.
	tags map[string]string
}

// logDestinations returns the destinations of the configuration; the caller holds the lock.
func (m *machine) logDestinations() (list []logDestination) {
	for _, destination := range m.config.Machine().Logging().Destinations() {
		tags := map[string]string{"talos-service": "machined"}
		for key, value := range destination.ExtraTags() {
			tags[key] = value
		}

		list = append(list, logDestination{destination.Endpoint().String(), tags})
	}

	for _, destination := range m.config.Runtime().KmsgLogURLs() {
		list = append(list, logDestination{url: destination.String()})
	}

	return list
}

// sendLogs sends the lines of this boot, as JSON lines, to the destinations of the current configuration.
func (m *machine) sendLogs(ctx context.Context) {
	positions, connections := map[string]int{}, map[string]net.Conn{}

	defer func() {
		for _, connection := range connections {
			_ = connection.Close()
		}
	}()

	for ctx.Err() == nil {
		m.ms.mu.Lock()
		destinations, changed := m.logDestinations(), m.changed.wait()
		m.ms.mu.Unlock()

		var failed <-chan time.Time

		for _, destination := range destinations {
			key := destination.key()

			m.ms.mu.Lock()
			lines, next := m.journal.Lines(positions[key])
			m.ms.mu.Unlock()

			if connections[key] == nil && len(lines) > 0 {
				connections[key] = destination.dial(ctx)
			}

			if destination.send(connections[key], lines) {
				positions[key] = next
			} else {
				delete(connections, key)

				failed = time.After(logRetry)
			}
		}

		select {
		case <-changed:
		case <-failed:
		case <-ctx.Done():
		}
	}
}

func (d logDestination) key() string {
	if d.tags == nil {
		return "kernel " + d.url
	}

	return d.url
}

// dial returns nil if the destination does not answer.
func (d logDestination) dial(ctx context.Context) net.Conn {
	destination, err := url.Parse(d.url)
	if err != nil {
		return nil
	}

	connection, err := (&net.Dialer{Timeout: logRetry}).DialContext(ctx, destination.Scheme, destination.Host)
	if err != nil {
		return nil
	}

	return connection
}

// send writes the lines and reports whether that worked.
func (d logDestination) send(connection net.Conn, lines []journal.Line) bool {
	for _, line := range lines {
		record := map[string]any{"msg": line.Text, "talos-time": line.At.Format(time.RFC3339Nano), "talos-level": "info"}
		if d.tags == nil {
			record["facility"], record["priority"] = "user", "info"
		}

		for key, value := range d.tags {
			record[key] = value
		}

		encoded, err := json.Marshal(record)
		if err != nil || connection == nil {
			return false
		}

		if _, err := connection.Write(append(encoded, '\n')); err != nil {
			return false
		}
	}

	return true
}
