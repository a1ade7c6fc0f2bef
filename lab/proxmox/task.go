package proxmox

import (
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
)

var taskCalls = map[string]handler{
	"GET /nodes/{node}/tasks":               listTasks,
	"GET /nodes/{node}/tasks/{upid}/status": withSubject(lookupTask("Sys.Audit"), taskStatus),
	"GET /nodes/{node}/tasks/{upid}/log":    withSubject(lookupTask("Sys.Audit"), taskLog),
	"DELETE /nodes/{node}/tasks/{upid}":     withSubject(lookupTask("Sys.Modify"), stopTask),
}

func stopTask(r *request, t datacentre.Task) (any, error) {
	r.dc.StopTask(t.UPID)

	return nil, nil
}

// lookupTask returns the call's task. Users other than its owner need the privilege on the host.
func lookupTask(privilege string) func(*request) (datacentre.Task, error) {
	return func(r *request) (datacentre.Task, error) {
		id := r.vars["upid"]
		t, ok := r.dc.Task(id)

		switch {
		case !strings.HasPrefix(id, "UPID:") || strings.Count(id, ":") < 8:
			return t, datacentre.WrongParameter("upid", "unable to parse worker upid")
		case !ok || t.Host != r.node():
			return t, datacentre.WrongParameter("upid", "no such task")
		case r.isTaskOwner(t):
			return t, nil
		default:
			return t, r.dc.Authorise(r.user, "/nodes/"+t.Host, privilege)
		}
	}
}

func taskStatus(_ *request, t datacentre.Task) (any, error) {
	o := taskInfo(t)
	if o["status"] = "running"; !t.Running() {
		o["status"], o["exitstatus"] = "stopped", t.ExitStatus
	}

	return o, nil
}

// taskInfo returns the fields that a task's status and row share.
func taskInfo(t datacentre.Task) object {
	user, token, _ := strings.Cut(t.User, "!")
	o := object{
		"upid":      t.UPID,
		"node":      t.Host,
		"pid":       t.PID,
		"pstart":    t.StartTime.UnixMilli() / 10 & 0xffffffff,
		"starttime": t.StartTime.Unix(),
		"type":      t.Type,
		"id":        t.ID,
		"user":      user,
	}
	setNonEmpty(o, "tokenid", token)

	return o
}

func taskLog(r *request, t datacentre.Task) (any, error) {
	lines := r.dc.TaskLog(t.UPID)
	start, limit := r.params.Number("start", 0), r.params.Number("limit", 50)

	rows := []object{}
	for i := max(start, 0); i < len(lines) && (limit == 0 || len(rows) < limit); i++ {
		rows = append(rows, object{"n": i + 1, "t": lines[i]})
	}

	if len(lines) == 0 {
		rows = append(rows, object{"n": 1, "t": "no content"})
	}

	return page{rows: rows, total: max(len(lines), 1)}, nil
}

func listTasks(r *request) (any, error) {
	source := r.params["source"]
	list := slices.DeleteFunc(r.visibleTasks(), func(t datacentre.Task) bool {
		return t.Host != r.node() ||
			r.params.Has("vmid") && t.ID != r.params["vmid"] ||
			r.params.Has("typefilter") && t.Type != r.params["typefilter"] ||
			r.params.Has("userfilter") && !strings.Contains(t.User, r.params["userfilter"]) ||
			r.params.Bool("errors") && (t.Running() || t.OK()) ||
			source == "active" && !t.Running() ||
			(source == "" || source == "archive") && t.Running()
	})

	rows := taskRows(list)
	for _, o := range rows {
		if _, ended := o["status"]; !ended {
			o["status"] = "RUNNING"
		}
	}

	total := len(rows)
	start, limit := min(max(r.params.Number("start", 0), 0), total), r.params.Number("limit", 50)

	return page{rows: rows[start:min(total, start+max(limit, 0))], total: total}, nil
}

// taskRows returns the tasks' rows, newest first.
func taskRows(tasks []datacentre.Task) []object {
	slices.Reverse(tasks)

	return rows(tasks, func(t datacentre.Task) object {
		o := taskInfo(t)
		if !t.Running() {
			o["endtime"], o["status"] = t.EndTime.Unix(), t.ExitStatus
		}

		return o
	})
}
