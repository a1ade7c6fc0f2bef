package journal

import "time"

const consoleLines = 1000

// Line is a kernel or service message.
type Line struct {
	At   time.Time
	Text string
}

// Log writes a line to the console.
func (j *Journal) Log(text string) {
	j.lines.add(Line{At: time.Now(), Text: text}, consoleLines)
	j.changed()
}

// Tail returns the last n lines of the console; 0 = all.
func (j *Journal) Tail(n int) []string {
	lines := j.lines.entries
	if n > 0 {
		lines = lines[max(0, len(lines)-n):]
	}

	texts := make([]string, 0, len(lines))
	for _, l := range lines {
		texts = append(texts, l.Text)
	}

	return texts
}

// Lines returns the console's lines after a position, and the position after them.
func (j *Journal) Lines(position int) ([]Line, int) { return j.lines.since(position) }
