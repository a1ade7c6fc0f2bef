package spec

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // computers without the database of time zones

	"talos-proxmox/internal/problem"
)

// Maintenance says when running machines may be interrupted, and what runs before and after that.
type Maintenance struct {
	// When running machines may be restarted or replaced, and Talos and Kubernetes upgraded: `pulumi up` refuses that at
	// other times, also in the middle of a rollout. Default: at any time.
	Windows []MaintenanceWindow `json:"windows,omitempty" pulumi:"windows,optional"`
	// A shell command for the beginning of a maintenance: it runs once in a run, before the first machine of the cluster
	// is drained, restarted, replaced or removed, or Talos or Kubernetes upgraded, and not at all in a run that does
	// nothing of that. If it fails, nothing of this is done. It runs as `healthCheck` does, for five minutes at most, with
	// further variables (upgrades.md#before-and-after). Default: none.
	Before string `json:"before,omitempty" jsonschema:"example=./examples/alertmanager/silence.sh begin" pulumi:"before,optional"`
	// A shell command for its end: it runs once, after the last of these changes, also if the run failed; after a killed
	// run, at the beginning of the next one. If it fails, the run warns. Default: none.
	After string `json:"after,omitempty" jsonschema:"example=./examples/alertmanager/silence.sh end" pulumi:"after,optional"`
}

// HasCommands reports whether something runs before or after a maintenance.
func (m Maintenance) HasCommands() bool { return m.Before+m.After != "" }

// MaintenanceWindow is a recurring span of time.
type MaintenanceWindow struct {
	// The days on which it begins: mon, tue, wed, thu, fri, sat, sun. Default: every day.
	Days []string `json:"days,omitempty" jsonschema:"example=sat" pulumi:"days,optional"`
	// The time of day at which it begins.
	StartTime string `json:"startTime" jsonschema:"required,example=22:00" pulumi:"startTime"`
	// The time of day at which it ends: on the next day, unless it is later than startTime.
	EndTime string `json:"endTime" jsonschema:"required,example=04:00" pulumi:"endTime"`
	// The time zone of both, by its IANA name. Default: UTC.
	TimeZone string `json:"timeZone,omitempty" jsonschema:"example=Europe/Berlin" pulumi:"timeZone,optional"`
}

// String describes the window: "22:00 to 04:00 Europe/Berlin on sat, sun".
func (w MaintenanceWindow) String() string {
	text := fmt.Sprintf("%s to %s %s", w.StartTime, w.EndTime, cmp.Or(w.TimeZone, "UTC"))
	if len(w.Days) > 0 {
		text += " on " + strings.Join(w.Days, ", ")
	}

	return text
}

// weekdays are the days of a window, in the order of [time.Weekday].
var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} //nolint:gochecknoglobals // a table

var timeOfDay = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$`)

// CheckMaintenance reports windows that are none, and commands without a word, below a path.
func CheckMaintenance(path string, m *Maintenance, found *problem.List) {
	if m == nil {
		return
	}

	for key, command := range map[string]string{"before": m.Before, "after": m.After} {
		if command != "" && strings.TrimSpace(command) == "" {
			found.Add(path+"."+key, command, "is empty; write a command for sh, or leave the key out")
		}
	}

	for i, w := range m.Windows {
		at := fmt.Sprintf("%s.windows[%d]", path, i)

		for j, day := range w.Days {
			if dayAt := fmt.Sprintf("%s.days[%d]", at, j); !slices.Contains(weekdays, day) {
				found.Add(dayAt, day, "is not a day; use one of mon, tue, wed, thu, fri, sat, sun")
			} else if slices.Contains(w.Days[:j], day) {
				found.Add(dayAt, day, "is listed twice; remove one of the two")
			}
		}

		checkTimeOfDay(at+".startTime", w.StartTime, found)
		checkTimeOfDay(at+".endTime", w.EndTime, found)

		if _, err := time.LoadLocation(w.TimeZone); err != nil {
			found.Add(at+".timeZone", w.TimeZone, "is not the IANA name of a time zone; write it as Europe/Berlin")
		}
	}
}

func checkTimeOfDay(path, value string, found *problem.List) {
	switch {
	case found.Has(path): // the stack file has no such key
	case value == "":
		found.Add(path, nil, "is missing; write it as 22:00")
	case !timeOfDay.MatchString(value):
		found.Add(path, value, "is not a time of day; write it as 22:00")
	}
}

// Allows reports whether machines may be interrupted at a time; if not, next is when the next window begins.
func (m *Maintenance) Allows(now time.Time) (allowed bool, next time.Time) {
	if m == nil || len(m.Windows) == 0 {
		return true, time.Time{}
	}

	for _, w := range m.Windows {
		begin := w.currentOrNext(now)
		if !begin.After(now) {
			return true, time.Time{}
		}

		if next.IsZero() || begin.Before(next) {
			next = begin
		}
	}

	return false, next
}

// Refusal says that machines may not be interrupted at a time, and what to do; empty = they may.
func (m *Maintenance) Refusal(now time.Time) string {
	allowed, next := m.Allows(now)
	if allowed {
		return ""
	}

	return fmt.Sprintf("it is outside of the maintenance windows of the cluster; the next one begins %s (in %s): run the same "+
		"then, or take maintenance.windows out of the stack file for now",
		next.Format("Mon 2006-01-02 15:04 MST"), strings.TrimSuffix(next.Sub(now).Truncate(time.Minute).String(), "0s"))
}

// currentOrNext returns when the window begins that is open at a time, or else the next one. The window is valid.
func (w MaintenanceWindow) currentOrNext(now time.Time) time.Time {
	zone, _ := time.LoadLocation(w.TimeZone)
	now = now.In(zone)

	for day := -1; ; day++ { // the window of yesterday may be open
		begin, end := w.on(now, day)
		if now.Before(end) && (len(w.Days) == 0 || slices.Contains(w.Days, weekdays[begin.Weekday()])) {
			return begin
		}
	}
}

// on returns begin and end of the window that begins some days after a time.
func (w MaintenanceWindow) on(now time.Time, days int) (begin, end time.Time) {
	at := func(clock string, days int) time.Time {
		t, _ := time.Parse("15:04", clock)

		return time.Date(now.Year(), now.Month(), now.Day()+days, t.Hour(), t.Minute(), 0, 0, now.Location())
	}

	if begin, end = at(w.StartTime, days), at(w.EndTime, days); w.EndTime <= w.StartTime {
		end = at(w.EndTime, days+1)
	}

	return begin, end
}
