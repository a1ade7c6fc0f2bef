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

// Task is a worker of a host.
type Task struct {
	UPID string `json:"upid"`
	Host string `json:"host"`
	// Type is PVE's: qmcreate, qmclone, qmstart, …; ID what it works on, mostly a VMID.
	Type string `json:"type"`
	ID   string `json:"id"`
	User string `json:"user"`
	PID  int    `json:"pid"`
	// StartTime and EndTime are real time; EndTime is zero while the task runs.
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
	// ExitStatus is "OK", "WARNINGS: n" or the error; empty while the task runs.
	ExitStatus string `json:"exitStatus"`
}

// Running says whether the task still works.
func (t Task) Running() bool { return t.EndTime.IsZero() }

// OK says whether the task ended well.
func (t Task) OK() bool { return t.ExitStatus == "OK" || strings.HasPrefix(t.ExitStatus, "WARNINGS: ") }

// keptTasks bounds the task list of the state file.
const keptTasks = 5000

// job is what a worker does.
type job func(ctx context.Context, w *worker) error

// worker is the inside of a running task; one without an UPID is of a change without a task, and has no log.
type worker struct {
	d    *Datacentre
	upid string
	// made are new volumes, and begun a new VM, which go again if the worker fails.
	made  []*Volume
	begun int
}

func (w *worker) log(format string, a ...any) {
	if w.upid != "" {
		w.d.state.Logs[w.upid] = append(w.d.state.Logs[w.upid], strings.Split(fmt.Sprintf(format, a...), "\n")...)
	}
}

// spawn starts a worker and returns its UPID.
func (d *Datacentre) spawn(user, hostName, kind, id string, run job) (string, error) {
	if d.running.Err() != nil {
		return "", Refuse("got no worker upid - start worker failed")
	}

	d.state.NextPID++
	now := time.Now()
	t := &Task{Host: hostName, Type: kind, ID: id, User: user, PID: d.state.NextPID, StartTime: now}
	// The pid is the lab's own count and unique, so that two tasks of one second never share an UPID.
	t.UPID = fmt.Sprintf(
		"UPID:%s:%08X:%08X:%08X:%s:%s:%s:", hostName, t.PID, now.UnixMilli()/10&0xffffffff, now.Unix(), kind, id, user,
	)
	d.state.Tasks = append(d.state.Tasks, t)

	for len(d.state.Tasks) > keptTasks && !d.state.Tasks[0].Running() {
		delete(d.state.Logs, d.state.Tasks[0].UPID)
		d.state.Tasks = slices.Delete(d.state.Tasks, 0, 1)
	}

	ctx, cancel := context.WithCancel(d.running)
	d.cancels[t.UPID] = cancel
	d.ended[t.UPID] = make(chan struct{})
	d.workers.Add(1)

	go d.work(ctx, t, run)

	return t.UPID, nil
}

func (d *Datacentre) work(ctx context.Context, t *Task, run job) {
	defer d.workers.Done()

	defer d.changing()()

	w := &worker{d: d, upid: t.UPID}

	fault, warnings, err := d.taskFault(ctx, t)
	if err == nil {
		err = w.do(context.WithValue(ctx, faultKey{}, fault), run)
	}

	if err == nil { // a worker that never paused
		err = fault
	}

	for n := range warnings {
		w.log("WARN: warning %d of the lab's fault", n+1)
	}

	status := "OK"

	switch {
	case err != nil:
		status = strings.Join(strings.Fields(err.Error()), " ") // one line, as PVE stores it
		w.log("TASK ERROR: %s", status)
	case warnings > 0:
		status = fmt.Sprintf("WARNINGS: %d", warnings)
		w.log("TASK %s", status)
	default:
		w.log("TASK OK")
	}

	t.EndTime = time.Now()
	t.ExitStatus = status
	d.cancels[t.UPID]()
	delete(d.cancels, t.UPID)
	close(d.ended[t.UPID])
	delete(d.ended, t.UPID)
}

// do carries work out, and takes away what was made by work that fails.
func (w *worker) do(ctx context.Context, run job) error {
	err := run(ctx, w)
	if err != nil {
		w.d.free(w.made...)
		delete(w.d.state.VMs, w.begun)
	}

	return err
}

// keep has what was made stay, whatever fails from now on.
func (w *worker) keep() { w.made, w.begun = nil, 0 }

// failed says what failed, unless somebody has interrupted it.
func failed(what string, err error) error {
	if err == nil || errors.Is(err, errInterrupted) {
		return err
	}

	return fmt.Errorf("%s%w", what, err)
}

// Task returns a task by its UPID.
func (d *Datacentre) Task(upid string) (Task, bool) {
	defer d.reading()()

	for _, t := range slices.Backward(d.state.Tasks) {
		if t.UPID == upid {
			return *t, true
		}
	}

	return Task{}, false
}

// Tasks returns all tasks, oldest first.
func (d *Datacentre) Tasks() []Task {
	defer d.reading()()

	list := make([]Task, 0, len(d.state.Tasks))
	for _, t := range d.state.Tasks {
		list = append(list, *t)
	}

	return list
}

// TaskLog returns the lines a task has written so far.
func (d *Datacentre) TaskLog(upid string) []string {
	return locked(d, func() []string { return slices.Clone(d.state.Logs[upid]) })
}

// WaitTask waits for the end of a task. The error is the context's or that of an unknown UPID; how the task ended is in
// Task.ExitStatus.
func (d *Datacentre) WaitTask(ctx context.Context, upid string) (Task, error) {
	ended := locked(d, func() chan struct{} { return d.ended[upid] })
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
	defer d.changing()()

	if cancel := d.cancels[upid]; cancel != nil {
		cancel()
	}
}

// Error is a call that Proxmox VE refuses at once.
type Error struct {
	// Status is the HTTP status PVE answers.
	Status int
	// Message is PVE's own text, which it sends as the reason phrase.
	Message string
	// Fields is the errors{} object of the body: parameter to complaint.
	Fields map[string]string
	// Bare says that the answer has no body.
	Bare bool
}

// Error returns the message, with the complaints about parameters.
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

// ParameterError is PVE's answer to a wrong parameter.
func ParameterError(fields map[string]string) *Error {
	return &Error{Status: http.StatusBadRequest, Message: "Parameter verification failed.", Fields: fields}
}

// Forbidden is PVE's answer to a missing permission; what is its detail, such as "/vms/100, VM.Allocate", empty where
// PVE gives none.
func Forbidden(what string) *Error {
	if what != "" {
		what = " (" + what + ")"
	}

	return Answer(http.StatusForbidden, "Permission check failed%s", what)
}

// errInterrupted is how an interrupted worker ends.
var errInterrupted = errors.New("interrupted by signal")

// Refuse is what PVE answers to what it cannot do.
func Refuse(format string, a ...any) *Error {
	return Answer(http.StatusInternalServerError, format, a...)
}

// Answer is a refusal with a status.
func Answer(status int, format string, a ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, a...)}
}

// WrongParameter is a ParameterError with one complaint.
func WrongParameter(name, format string, a ...any) *Error {
	return ParameterError(map[string]string{name: fmt.Sprintf(format, a...)})
}
