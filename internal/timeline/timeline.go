// Package timeline says what a run of the engine does and has done, from the log of its events, while it is written and
// afterwards.
package timeline

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"

	"talos-proxmox/internal/planguard"
)

// Silence is how long a run may write no event before it counts as one that waits, or was killed: what waits reports
// every 15 seconds.
const Silence = 2 * time.Minute

// Run is one run of the engine. The engine's clock counts seconds.
type Run struct {
	// Preview reports whether it changes nothing: `pulumi up` previews before it asks for confirmation.
	Preview bool
	Started time.Time
	// Last is the time of its last event.
	Last time.Time
	// Ended reports whether the engine has ended it; Failed, whether without success.
	Ended, Failed bool
	// Steps are those that change something, in the order of their start.
	Steps []Step
	// Unchanged is the number of resources that are as planned, Refreshed of those that were read first.
	Unchanged, Refreshed int
	// Errors are the engine's, the program's and the providers', without secrets.
	Errors []string
}

// Step is an operation on a resource.
type Step struct {
	Resource  string // its name
	Operation string // create, update, delete, …
	Started   time.Time
	Ended     time.Time // zero while it runs
	Failed    bool
	// Message is the last one about the resource, without secrets: what it waits for.
	Message string

	urn string
}

// Duration returns how long a step has taken until now.
func (s Step) Duration(now time.Time) time.Duration {
	if s.Ended.IsZero() {
		return now.Sub(s.Started)
	}

	return s.Ended.Sub(s.Started)
}

// Running returns the steps that have not ended.
func (r Run) Running() (running []Step) {
	for _, s := range r.Steps {
		if s.Ended.IsZero() {
			running = append(running, s)
		}
	}

	return running
}

// IsSilent reports whether a run that has not ended writes no events any more.
func (r Run) IsSilent(now time.Time) bool { return !r.Ended && now.Sub(r.Last) > Silence }

// event is what the timeline needs of an event of the engine ([apitype.EngineEvent]): no properties of resources.
type event struct {
	Timestamp        int64                    `json:"timestamp"`
	CancelEvent      *apitype.CancelEvent     `json:"cancelEvent"`
	DiagnosticEvent  *apitype.DiagnosticEvent `json:"diagnosticEvent"`
	SummaryEvent     *apitype.SummaryEvent    `json:"summaryEvent"`
	ErrorEvent       *apitype.ErrorEvent      `json:"errorEvent"`
	ResourcePreEvent *step                    `json:"resourcePreEvent"`
	ResOutputsEvent  *step                    `json:"resOutputsEvent"`
	ResOpFailedEvent *step                    `json:"resOpFailedEvent"`
}

type step struct {
	Metadata struct {
		Op  string `json:"op"`
		URN string `json:"urn"`
		Old state  `json:"old"`
		New state  `json:"new"`
	} `json:"metadata"`
	Planning bool `json:"planning"`
}

// state reports whether a resource is a provider's, not a component.
type state struct {
	Custom bool `json:"custom"`
}

// Read reads the log of a run, which `--event-log` writes. A line that is not complete yet ends it; nil = there is no
// event yet.
func Read(log io.Reader) *Run {
	var run *Run

	decoder := json.NewDecoder(log)

	for {
		var e event
		if err := decoder.Decode(&e); err != nil {
			return run
		}

		if run == nil {
			run = &Run{Started: time.Unix(e.Timestamp, 0)}
		}

		run.add(e)
	}
}

func (r *Run) add(e event) {
	now := time.Unix(e.Timestamp, 0)
	r.Last = now

	switch {
	case e.ResourcePreEvent != nil:
		r.begin(*e.ResourcePreEvent, now)
	case e.ResOutputsEvent != nil:
		r.end(*e.ResOutputsEvent, now, false)
	case e.ResOpFailedEvent != nil:
		r.end(*e.ResOpFailedEvent, now, true)
	case e.DiagnosticEvent != nil:
		r.addMessage(*e.DiagnosticEvent)
	case e.ErrorEvent != nil:
		r.Errors = append(r.Errors, planguard.ErrorMessage("", e.ErrorEvent.Error).Text)
	case e.SummaryEvent != nil:
		r.Preview = e.SummaryEvent.IsPreview
		r.Failed = e.SummaryEvent.Result != apitype.OperationResultSucceeded
	case e.CancelEvent != nil:
		r.Ended = true
		r.Failed = r.Failed || len(r.Errors) > 0
	}
}

// changes are the operations that change something, by the engine's names; a replacement has two of them.
var changes = map[string]string{
	"create": "create", "update": "update", "delete": "delete", "import": "import",
	"create-replacement": "create anew", "delete-replaced": "delete the former", "import-replacement": "import anew",
}

func (r *Run) begin(s step, now time.Time) {
	r.Preview = s.Planning

	switch operation := changes[s.Metadata.Op]; {
	case !s.Metadata.Old.Custom && !s.Metadata.New.Custom: // the parts of a component are what happens
	case strings.Contains(s.Metadata.URN, "::pulumi:providers:"): // the settings of a provider
	case s.Metadata.Op == "same":
		r.Unchanged++
	case s.Metadata.Op == "refresh":
		r.Refreshed++
	case operation != "":
		r.Steps = append(r.Steps, Step{
			Resource: urn.URN(s.Metadata.URN).Name(), Operation: operation, Started: now, urn: s.Metadata.URN,
		})
	}
}

// last returns the last step of a resource, nil if it has none.
func (r *Run) last(resource string) *Step {
	for i := len(r.Steps) - 1; i >= 0; i-- {
		if r.Steps[i].urn == resource {
			return &r.Steps[i]
		}
	}

	return nil
}

func (r *Run) end(s step, now time.Time, failed bool) {
	for i := range r.Steps {
		known := &r.Steps[i]
		if known.urn == s.Metadata.URN && known.Operation == changes[s.Metadata.Op] && known.Ended.IsZero() {
			known.Ended, known.Failed = now, failed
		}
	}
}

func (r *Run) addMessage(d apitype.DiagnosticEvent) {
	m := planguard.ErrorMessage(d.URN, d.Message)
	if m.Text == "" || planguard.IsPluginShutdown(m) {
		return
	}

	if known := r.last(d.URN); known != nil {
		known.Message = m.Text
	}

	if d.Severity != "error" {
		return
	}

	if m.Resource != "" {
		m.Text = m.Resource + ": " + m.Text
	}

	r.Errors = append(r.Errors, m.Text)
}

// File reads the log of a stack's last run, again only if it has changed.
type File struct {
	path string

	mu       sync.Mutex
	modified time.Time
	size     int64
	run      *Run
}

// NewFile returns the log at a path, where there may be none yet.
func NewFile(path string) *File { return &File{path: path} }

// Run returns the run; nil if none has been logged.
func (f *File) Run() (*Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read

	info, err := file.Stat()
	if err != nil {
		return nil, err
	}

	if info.Size() != f.size || !info.ModTime().Equal(f.modified) {
		f.size, f.modified, f.run = info.Size(), info.ModTime(), Read(file)
	}

	return f.run, nil
}
