package machine

import (
	"fmt"
	"time"
)

const consoleLines = 1000

// line is one kernel or service message.
type line struct {
	at   time.Time
	text string
}

// console keeps the last messages of a machine; dropped counts those that scrolled away, so that a follower knows its position.
type console struct {
	lines   []line
	dropped int
}

func (c *console) add(text string) {
	c.lines = append(c.lines, line{at: time.Now(), text: text})

	if extra := len(c.lines) - consoleLines; extra > 0 {
		c.lines = append(c.lines[:0:0], c.lines[extra:]...)
		c.dropped += extra
	}
}

// tail returns the last n lines, all with 0.
func (c *console) tail(n int) []string {
	from := 0
	if n > 0 {
		from = max(0, len(c.lines)-n)
	}

	texts := make([]string, 0, len(c.lines)-from)
	for _, l := range c.lines[from:] {
		texts = append(texts, l.text)
	}

	return texts
}

// since returns the lines after a position and the position after them.
func (c *console) since(position int) ([]line, int) {
	from := max(0, position-c.dropped)
	if from > len(c.lines) {
		from = len(c.lines)
	}

	return append([]line(nil), c.lines[from:]...), c.dropped + len(c.lines)
}

// logf writes to the machine's console; the caller holds the lock.
func (m *machine) logf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	m.console.add(text)
	m.ms.options.Log.Debug(text, "vmid", m.hw.VMID, "machine", m.hw.Name)
	m.changed.fire()
}

// say is logf for callers without the lock.
func (m *machine) say(format string, args ...any) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.logf(format, args...)
}
