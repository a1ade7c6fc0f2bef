// Package journal is a machine's console and the events of the Talos API.
package journal

import "slices"

// Journal lasts from a machine's power-on to its power-off. The machine's lock guards it.
type Journal struct {
	lines   log[Line]
	events  log[event]
	changed func()
}

// New returns an empty journal; changed is called for every entry.
func New(changed func()) *Journal { return &Journal{changed: changed} }

// log keeps the last entries; dropped counts the removed ones, so that positions stay valid.
type log[E any] struct {
	entries []E
	dropped int
}

func (l *log[E]) add(e E, kept int) {
	l.entries = append(l.entries, e)

	if extra := len(l.entries) - kept; extra > 0 {
		l.entries = append(l.entries[:0:0], l.entries[extra:]...)
		l.dropped += extra
	}
}

// end returns the position after the last entry.
func (l *log[E]) end() int { return l.dropped + len(l.entries) }

// since returns the entries after a position, and the position after them.
func (l *log[E]) since(position int) ([]E, int) {
	from := min(max(0, position-l.dropped), len(l.entries))

	return slices.Clone(l.entries[from:]), l.end()
}
