package live

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"talos-proxmox/internal/report"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/timeline"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"join":  strings.Join,
	"level": levelOf,
	"day":   func(t time.Time) string { return t.Format(time.DateOnly) },
	"in":    func(t, now time.Time) string { return request.FormatDuration(t.Sub(now)) },
}).Parse(pageText))

// pageView is a snapshot as the page shows it.
type pageView struct {
	Snapshot

	Nonce   string
	Style   template.CSS
	Picture template.HTML
	// Rows are steps of the run; Hidden is how many earlier ones are not among them.
	Rows   []row
	Hidden int
}

// Poll returns poll in milliseconds.
func (pageView) Poll() int64 { return poll.Milliseconds() }

// HasNodes reports whether a cluster was asked for its nodes.
func (v pageView) HasNodes() bool {
	return slices.ContainsFunc(v.Clusters, func(c request.ClusterStatus) bool { return len(c.Nodes) > 0 })
}

// row is a step of a run, with its bar in thousandths of the run's time.
type row struct {
	timeline.Step

	State       string // done, running or failed
	Began, Took string
	X, Width    int
}

func newPageView(s Snapshot) (v pageView, err error) {
	v.Snapshot = s
	if v.Style, err = report.Style(); err != nil {
		return v, err
	}

	if v.Picture, err = report.Picture(s.Plan, s.states()); err != nil {
		return v, err
	}

	if s.Run != nil && !s.Run.Preview {
		v.Rows, v.Hidden = rows(*s.Run, s.Now)
	}

	return v, nil
}

// maxRows is how many steps the page shows.
const maxRows = 40

// rows returns the steps of a run in the order of their start. Where there are too many, those that ended well first
// are left out.
func rows(r timeline.Run, now time.Time) (shown []row, hidden int) {
	end := now
	if r.Ended {
		end = r.Last
	}

	whole := max(end.Sub(r.Started), time.Second)
	steps := slices.Clone(r.Steps)

	for hidden = 0; len(steps) > maxRows; hidden++ {
		oldest := -1

		for i, step := range steps {
			if !step.Failed && !step.Ended.IsZero() && (oldest < 0 || step.Ended.Before(steps[oldest].Ended)) {
				oldest = i
			}
		}

		if oldest < 0 {
			break
		}

		steps = slices.Delete(steps, oldest, oldest+1)
	}

	for _, step := range steps {
		took := step.Duration(end)
		one := row{
			Step: step, State: "done", Began: clock(step.Started), Took: took.Truncate(time.Second).String(),
			X: int(step.Started.Sub(r.Started) * 1000 / whole), Width: max(int(took*1000/whole), 10),
		}
		one.X = min(one.X, 1000-one.Width)

		switch {
		case step.Failed:
			one.State = "failed"
		case step.Ended.IsZero():
			one.State = "running"
		}

		shown = append(shown, one)
	}

	return shown, hidden
}

// write writes a template of the page: all or nothing.
func write(to io.Writer, name string, v pageView) error {
	var b bytes.Buffer
	if err := page.ExecuteTemplate(&b, name, v); err != nil {
		return fmt.Errorf("unable to write the page of stack %q: %w", v.Stack, err)
	}

	_, _ = b.WriteTo(to) // a browser that has gone needs no answer

	return nil
}
