package proxmox

import (
	"strings"

	"talos-proxmox/lab/datacentre"
)

func taskRoutes() []route {
	return []route{
		{
			method: "GET", path: "/nodes/{node}/tasks",
			params: "errors limit since source start statusfilter typefilter until userfilter vmid", handle: onNode(listTasks),
		},
		{method: "GET", path: "/nodes/{node}/tasks/{upid}", handle: index("name", "log", "status")},
		{method: "GET", path: "/nodes/{node}/tasks/{upid}/status", handle: onTask("Sys.Audit", taskStatus)},
		{
			method: "GET",
			path:   "/nodes/{node}/tasks/{upid}/log",
			params: "start limit download",
			handle: onTask("Sys.Audit", taskLog),
		},
		{
			method: "DELETE",
			path:   "/nodes/{node}/tasks/{upid}",
			handle: onTask("Sys.Modify", func(r *request, t datacentre.Task) (any, error) {
				r.dc.StopTask(t.UPID)

				return nil, nil
			}),
		},
	}
}

// onTask finds the call's task, which is its owner's; others need the privilege on the host.
func onTask(privilege string, h func(*request, datacentre.Task) (any, error)) func(*request) (any, error) {
	return func(r *request) (any, error) {
		id := r.vars["upid"]
		if !strings.HasPrefix(id, "UPID:") || strings.Count(id, ":") < 8 {
			return nil, datacentre.ParameterError(map[string]string{"upid": "unable to parse worker upid"})
		}

		t, ok := r.dc.Task(id)
		if !ok || t.Host != r.node() {
			return nil, datacentre.ParameterError(map[string]string{"upid": "no such task"})
		}

		if !r.ownsTask(t) {
			if err := r.dc.Authorise(r.user, "/nodes/"+t.Host, privilege); err != nil {
				return nil, err
			}
		}

		return h(r, t)
	}
}

func taskStatus(_ *request, t datacentre.Task) (any, error) {
	user, token, isToken := strings.Cut(t.User, "!")
	o := object{
		"upid":      t.UPID,
		"node":      t.Host,
		"pid":       t.PID,
		"pstart":    t.StartTime.UnixMilli() / 10 & 0xffffffff,
		"starttime": t.StartTime.Unix(),
		"type":      t.Type,
		"id":        t.ID, "user": user, "status": "running",
	}

	if isToken {
		o["tokenid"] = token
	}

	if !t.Running() {
		o["status"], o["exitstatus"] = "stopped", t.ExitStatus
	}

	return o, nil
}

func taskLog(r *request, t datacentre.Task) (any, error) {
	lines := r.dc.TaskLog(t.UPID)

	start, err := r.params.number("start", 0)
	if err != nil {
		return nil, err
	}

	limit, err := r.params.number("limit", 50)
	if err != nil {
		return nil, err
	}

	rows := []object{}
	for i := max(start, 0); i < len(lines) && (limit == 0 || len(rows) < limit); i++ {
		rows = append(rows, object{"n": i + 1, "t": lines[i]})
	}

	if len(lines) == 0 {
		rows = append(rows, object{"n": 1, "t": "no content"})
	}

	return listing{rows: rows, total: max(len(lines), 1)}, nil
}

func listTasks(r *request, h datacentre.Host) (any, error) {
	list := []datacentre.Task{}
	source := r.params.get("source")

	for _, t := range r.ownTasks() {
		switch {
		case t.Host != h.Name,
			r.params.has("vmid") && t.ID != r.params.get("vmid"),
			r.params.has("typefilter") && t.Type != r.params.get("typefilter"),
			r.params.has("userfilter") && !strings.Contains(t.User, r.params.get("userfilter")),
			r.params.bool("errors") && (t.Running() || t.OK()),
			source == "active" && !t.Running(),
			(source == "" || source == "archive") && t.Running():
			continue
		}

		list = append(list, t)
	}

	rows := taskRows(list)
	for _, o := range rows {
		if _, ended := o["status"]; !ended {
			o["status"] = "RUNNING"
		}
	}

	return taskPage(r, rows)
}

func taskPage(r *request, rows []object) (any, error) {
	start, err := r.params.number("start", 0)
	if err != nil {
		return nil, err
	}

	limit, err := r.params.number("limit", 50)
	if err != nil {
		return nil, err
	}

	total := len(rows)
	start = min(max(start, 0), total)

	return listing{rows: rows[start:min(total, start+max(limit, 0))], total: total}, nil
}

// taskRows lists tasks, newest first.
func taskRows(tasks []datacentre.Task) []object {
	rows := make([]object, 0, len(tasks))

	for i := len(tasks) - 1; i >= 0; i-- {
		t := tasks[i]
		o := object{
			"upid":      t.UPID,
			"node":      t.Host,
			"pid":       t.PID,
			"pstart":    t.StartTime.UnixMilli() / 10 & 0xffffffff,
			"starttime": t.StartTime.Unix(),
			"type":      t.Type, "id": t.ID,
		}

		user, token, isToken := strings.Cut(t.User, "!")
		if o["user"] = user; isToken {
			o["tokenid"] = token
		}

		if !t.Running() {
			o["endtime"], o["status"] = t.EndTime.Unix(), t.ExitStatus
		}

		rows = append(rows, o)
	}

	return rows
}
