package live

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/terminal"
	"talos-proxmox/internal/timeline"
)

// redraw is how often a terminal is drawn on between collections: the age of what it shows, and the run in progress.
const redraw = time.Second

// Watch shows the status until the context ends: in a terminal as one picture that is renewed, in a pipe as a block of
// lines whenever something has changed.
func (c *Collector) Watch(ctx context.Context, to io.Writer, on terminal.Terminal) error {
	collected := make(chan struct{}, 1)
	ended := make(chan struct{})

	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); <-ended }()

	go func() {
		defer close(ended)

		for ctx.Err() == nil {
			c.Once(ctx)

			select {
			case collected <- struct{}{}:
			default: // the last one is not shown yet
			}

			select {
			case <-ctx.Done():
			case <-time.After(c.Interval):
			}
		}
	}()

	ticks := time.NewTicker(redraw)
	defer ticks.Stop()

	show := (&changes{to: to}).show
	if on.Size != nil {
		show = (&screen{to: to, Terminal: on}).show
	}

	for {
		if err := show(c.Snapshot()); err != nil {
			return fmt.Errorf("unable to print the status: %w", err)
		}

		select {
		case <-ctx.Done():
			return nil
		case <-collected:
		case <-ticks.C:
		}
	}
}

// changes prints to a pipe what has changed.
type changes struct {
	to            io.Writer
	overview, run string
}

func (p *changes) show(s Snapshot) error {
	var b strings.Builder

	if overview := fingerprint(s); overview != p.overview && (!s.Asked.IsZero() || s.Problem != "") {
		p.overview = overview

		fmt.Fprintf(&b, "%s\n", s.Now.UTC().Format(time.RFC3339))
		writeOverview(&b, s, 0)
		b.WriteString("\n")
	}

	if run := runLine(s.Run); run != p.run {
		p.run = run
		fmt.Fprintf(&b, "%s %s\n", s.Now.UTC().Format(time.RFC3339), run)
	}

	_, err := io.WriteString(p.to, b.String())

	return err
}

// fingerprint is what of a snapshot counts as a change: not when it was asked, and not the load of hosts.
func fingerprint(s Snapshot) string {
	s.Clusters = slices.Clone(s.Clusters)
	for i := range s.Clusters {
		s.Clusters[i].Asked = time.Time{}
		s.Clusters[i].Placement = withoutLoad(s.Clusters[i].Placement)
	}

	text, err := json.Marshal([]any{s.Clusters, withoutLoad(s.Placement), s.Problem})
	if err != nil {
		return err.Error()
	}

	return string(text)
}

func withoutLoad(p *request.Placement) *request.Placement {
	if p == nil {
		return nil
	}

	quiet := *p
	quiet.Hosts = slices.Clone(p.Hosts)

	for i := range quiet.Hosts {
		quiet.Hosts[i].CPU, quiet.Hosts[i].MemoryUsedBytes = 0, 0
	}

	return &quiet
}

// runLine says in one line what a run does, without times.
func runLine(r *timeline.Run) string {
	switch {
	case r == nil:
		return ""
	case r.Preview:
		return "up: previews"
	case r.Ended && r.Failed:
		return "up: failed: " + counts(r) + ": " + strings.Join(r.Errors, "; ")
	case r.Ended:
		return "up: ended: " + counts(r)
	default:
		line := "up: " + counts(r)
		for _, step := range r.Running() {
			line += "; " + step.Operation + " " + step.Resource
		}

		return line
	}
}

// screen draws on a terminal.
type screen struct {
	terminal.Terminal

	to    io.Writer
	drawn bool
}

// Control sequences of terminals (ECMA-48).
const (
	clearScreen  = "\x1b[2J"
	cursorHome   = "\x1b[H"
	clearLineEnd = "\x1b[K"
	clearBelow   = "\x1b[J"
)

func (p *screen) show(s Snapshot) error {
	width, height := p.Size()

	var b strings.Builder

	b.WriteString(terminal.Wrap("Stack "+s.Stack+". "+s.Freshness(), "", width))
	writeOverview(&b, s, width)
	writeRun(&b, s, width)

	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if height > 1 && len(lines) >= height {
		hidden := len(lines) - height + 2
		lines = append(lines[:height-2], fmt.Sprintf("… %d more lines: a higher terminal shows them", hidden))
	}

	var drawing strings.Builder
	if !p.drawn {
		drawing.WriteString(clearScreen)
	}

	p.drawn = true

	drawing.WriteString(cursorHome)

	for _, line := range lines {
		drawing.WriteString(p.colour(s, line) + clearLineEnd + "\n")
	}

	drawing.WriteString(clearBelow)

	_, err := io.WriteString(p.to, drawing.String())

	return err
}

// Colours of levels (ECMA-48): green, yellow, red.
var colours = map[string]string{levelOK: "32", levelCare: "33", levelUnknown: "31"}

// colour colours the headings of clusters, and steps that failed.
func (p *screen) colour(s Snapshot, line string) string {
	level := ""
	if strings.HasPrefix(line, failedMark) {
		level = levelUnknown
	}

	for _, c := range s.Clusters {
		if line == c.Heading() {
			level = levelOf(c.Status)
		}
	}

	if !p.Colour || level == "" {
		return line
	}

	return "\x1b[1;" + colours[level] + "m" + line + "\x1b[0m"
}

func writeOverview(b *strings.Builder, s Snapshot, width int) {
	if s.Problem != "" {
		b.WriteString(terminal.Wrap("The last collection failed: "+s.Problem, "", width))
	}

	for _, c := range s.Clusters {
		b.WriteString("\n" + c.Table(width))
	}

	if len(s.Clusters) == 0 && s.Placement != nil {
		rows := [][]string{{"MACHINE", "VMID", "STATUS", "HOST"}}
		for _, m := range s.Placement.Machines {
			rows = append(rows, []string{m.Node, fmt.Sprint(m.VMID), m.Status, m.Location()})
		}

		b.WriteString("\n" + terminal.Table(rows, width))
	}

	if width > 0 { // a pipe is not told of loads, which change all the time
		writeHosts(b, s, width)
	}
}

func writeHosts(b *strings.Builder, s Snapshot, width int) {
	rows := [][]string{{"PROXMOX HOST", "STATUS", "CORES", "MEMORY"}}

	for _, h := range s.hosts() {
		row := []string{h.Name, h.Status}
		for _, load := range loads(h) {
			row = append(row, load.Text)
		}

		rows = append(rows, append(row, "", "")[:len(rows[0])])
	}

	if len(rows) > 1 {
		b.WriteString("\n" + terminal.Table(rows, width))
	}
}

// failedMark begins the line of a step that failed.
const failedMark = "  failed "

// maxSteps is how many steps of a run a terminal shows.
const maxSteps = 8

// writeRun writes what a run does, and which of its steps run or have failed.
func writeRun(b *strings.Builder, s Snapshot, width int) {
	b.WriteString("\n" + terminal.Wrap(s.RunText(), "", width))

	if s.Run == nil || s.Run.Preview {
		return
	}

	shown := slices.DeleteFunc(slices.Clone(s.Run.Steps), func(step timeline.Step) bool {
		return !step.Failed && (!step.Ended.IsZero() || s.Run.Ended)
	})

	for i, step := range shown {
		if i == maxSteps {
			fmt.Fprintf(b, "  … and %d more\n", len(shown)-i)

			break
		}

		mark := "  "
		if step.Failed {
			mark = failedMark
		}

		line := fmt.Sprintf("%s%s %s, %s", mark, step.Operation, step.Resource, step.Duration(s.Now).Truncate(time.Second))
		if step.Message != "" {
			line += ": " + strings.Join(strings.Fields(step.Message), " ")
		}

		b.WriteString(terminal.Shorten(line, width) + "\n")
	}
}
