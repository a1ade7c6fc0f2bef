package datacentre

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Task is a worker of a host, in PVE's words.
type Task struct {
	UPID string `json:"upid"`
	Host string `json:"host"`
	// Type is PVE's type: qmcreate, qmclone, qmstart, …; ID the subject, mostly a VMID.
	Type string `json:"type"`
	ID   string `json:"id"`
	User string `json:"user"`
	PID  int    `json:"pid"`
	// StartTime and EndTime are in real time; EndTime is zero while the task runs.
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
	// ExitStatus is "OK", "WARNINGS: n" or the error; empty while the task runs.
	ExitStatus string `json:"exitStatus"`
}

// Running reports whether the task is running.
func (t Task) Running() bool { return t.EndTime.IsZero() }

// OK reports whether the task succeeded.
func (t Task) OK() bool { return t.ExitStatus == "OK" || strings.HasPrefix(t.ExitStatus, "WARNINGS: ") }

// maxTasks limits the tasks in the state file.
const maxTasks = 5000

// job is the work of a worker.
type job func(ctx context.Context, w *worker) error

// worker executes a task, or a change without a task: then it has neither an UPID nor a log.
type worker struct {
	d    *Datacentre
	upid string
	// createdVolumes and createdVM are deleted if the worker fails.
	createdVolumes []*Volume
	createdVM      int
}

func (w *worker) log(format string, a ...any) {
	if w.upid != "" {
		w.d.state.Logs[w.upid] = append(w.d.state.Logs[w.upid], strings.Split(fmt.Sprintf(format, a...), "\n")...)
	}
}

// startTask starts a worker and returns its UPID.
func (d *Datacentre) startTask(user, hostName, kind, id string, run job) (string, error) {
	if d.ctx.Err() != nil {
		return "", Refuse("got no worker upid - start worker failed")
	}

	d.state.NextPID++
	now := time.Now()
	t := &Task{Host: hostName, Type: kind, ID: id, User: user, PID: d.state.NextPID, StartTime: now}
	// The PID is a counter of the lab, so that UPIDs are unique even within a second.
	t.UPID = fmt.Sprintf(
		"UPID:%s:%08X:%08X:%08X:%s:%s:%s:", hostName, t.PID, now.UnixMilli()/10&0xffffffff, now.Unix(), kind, id, user,
	)
	d.state.Tasks = append(d.state.Tasks, t)

	for len(d.state.Tasks) > maxTasks && !d.state.Tasks[0].Running() {
		delete(d.state.Logs, d.state.Tasks[0].UPID)
		d.state.Tasks = slices.Delete(d.state.Tasks, 0, 1)
	}

	ctx, cancel := context.WithCancel(d.ctx)
	d.taskCancels[t.UPID] = cancel
	d.taskDone[t.UPID] = make(chan struct{})
	d.workers.Go(func() { d.runTask(ctx, t, run) })

	return t.UPID, nil
}

func (d *Datacentre) runTask(ctx context.Context, t *Task, run job) {
	defer d.lockWrite()()

	w := &worker{d: d, upid: t.UPID}

	fault, warnings, err := d.taskFault(ctx, t)
	if err == nil {
		err = w.run(context.WithValue(ctx, faultKey{}, fault), run)
	}

	if err == nil { // a worker that never slept
		err = fault
	}

	for n := range warnings {
		w.log("WARN: warning %d of the lab's fault", n+1)
	}

	status := "OK"

	switch {
	case err != nil:
		status = strings.Join(strings.Fields(err.Error()), " ") // one line, as in PVE
		w.log("TASK ERROR: %s", status)
	case warnings > 0:
		status = fmt.Sprintf("WARNINGS: %d", warnings)
		w.log("TASK %s", status)
	default:
		w.log("TASK OK")
	}

	t.EndTime = time.Now()
	t.ExitStatus = status
	d.taskCancels[t.UPID]()
	delete(d.taskCancels, t.UPID)
	close(d.taskDone[t.UPID])
	delete(d.taskDone, t.UPID)
}

// run executes a job, and rolls back what it created if it fails.
func (w *worker) run(ctx context.Context, run job) error {
	err := run(ctx, w)
	if err != nil {
		w.d.deleteVolumes(w.createdVolumes...)
		delete(w.d.state.VMs, w.createdVM)
	}

	return err
}

// keepCreated excludes what was created so far from the rollback.
func (w *worker) keepCreated() { w.createdVolumes, w.createdVM = nil, 0 }

// wrapFailure adds what failed to an error, unless the task was interrupted.
func wrapFailure(what string, err error) error {
	if err == nil || errors.Is(err, errInterrupted) {
		return err
	}

	return fmt.Errorf("%s%w", what, err)
}

// Task returns a task by its UPID.
func (d *Datacentre) Task(upid string) (Task, bool) {
	defer d.lockRead()()

	for _, t := range slices.Backward(d.state.Tasks) {
		if t.UPID == upid {
			return *t, true
		}
	}

	return Task{}, false
}

// Tasks returns all tasks, oldest first.
func (d *Datacentre) Tasks() []Task {
	defer d.lockRead()()

	list := make([]Task, 0, len(d.state.Tasks))
	for _, t := range d.state.Tasks {
		list = append(list, *t)
	}

	return list
}

// TaskLog returns the lines of a task's log so far.
func (d *Datacentre) TaskLog(upid string) []string {
	return withLock(d, func() []string { return slices.Clone(d.state.Logs[upid]) })
}

// WaitTask waits until a task ends. It fails if the context ends first or the UPID is unknown; Task.ExitStatus has the
// task's result.
func (d *Datacentre) WaitTask(ctx context.Context, upid string) (Task, error) {
	ended := withLock(d, func() chan struct{} { return d.taskDone[upid] })
	if ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
			return Task{}, fmt.Errorf("wait for task %s: %w", upid, ctx.Err())
		}
	}

	t, ok := d.Task(upid)
	if !ok {
		return Task{}, Refuse("unable to parse worker upid '%s'", upid)
	}

	return t, nil
}

// StopTask interrupts a running task.
func (d *Datacentre) StopTask(upid string) {
	defer d.lockWrite()()

	if cancel := d.taskCancels[upid]; cancel != nil {
		cancel()
	}
}

// Error is a call that Proxmox VE refuses.
type Error struct {
	// Status is the HTTP status of PVE's response.
	Status int
	// Message is PVE's own text, which PVE sends as the reason phrase.
	Message string
	// Fields is the body's errors object: messages by parameter.
	Fields map[string]string
	// Bare reports whether the response has no body.
	Bare bool
}

// Error returns the message with those of the parameters.
func (e *Error) Error() string {
	if len(e.Fields) == 0 {
		return e.Message
	}

	fields := map[string]string{}
	for name, complaint := range e.Fields {
		fields[name] = strings.TrimRight(complaint, "\n")
	}

	return fmt.Sprintf("%s %v", e.Message, fields)
}

// ParameterError is PVE's error for invalid parameters.
func ParameterError(fields map[string]string) *Error {
	return &Error{Status: http.StatusBadRequest, Message: "Parameter verification failed.", Fields: fields}
}

// Forbidden is PVE's error for a missing permission; what is its detail, such as "/vms/100, VM.Allocate", or empty if
// PVE gives none.
func Forbidden(what string) *Error {
	if what != "" {
		what = " (" + what + ")"
	}

	return NewError(http.StatusForbidden, "Permission check failed%s", what)
}

// errInterrupted ends an interrupted worker.
var errInterrupted = errors.New("interrupted by signal")

// Refuse returns PVE's general error, with status 500.
func Refuse(format string, a ...any) *Error {
	return NewError(http.StatusInternalServerError, format, a...)
}

// NewError returns an error with a status.
func NewError(status int, format string, a ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, a...)}
}

// WrongParameter is a ParameterError for one parameter.
func WrongParameter(name, format string, a ...any) *Error {
	return ParameterError(map[string]string{name: fmt.Sprintf(format, a...)})
}
