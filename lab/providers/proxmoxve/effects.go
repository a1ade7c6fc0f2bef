package proxmoxve

// Effect is what a change of a property does to a machine, or to another resource.
type Effect string

// What a change can do. A restart is a reboot, or switching off and on where the machine must be off for the change.
const (
	InPlace Effect = "in place"
	Restart Effect = "in place, with a restart"
	Replace Effect = "replace"
	Refused Effect = "refused"
	Ignored Effect = "nothing"
)

// Effects lists what a change of each property of a resource type does, by its path: disks[].size of a VM. It is the
// table that updates and plans follow. A property that the stand-in does not know is not in it.
func Effects(token string) map[string]Effect {
	out := map[string]Effect{}
	if t := newServer(Options{}).types[token]; t != nil {
		t.attributes.effects("", t.attributes, "", out)
	}

	return out
}

// effects walks down; at is the path as the table is asked for it, without list indexes.
func (as attributes) effects(path string, table attributes, at string, out map[string]Effect) {
	for name, a := range as {
		here, there := join(path, name), join(at, name)

		switch {
		case a.output:
		case a.kind == block:
			if a.many {
				here += "[]"
			}

			a.fields.effects(here, table, there, out)
		default:
			_, e := table.at(there)
			out[here] = map[effect]Effect{
				inPlace: InPlace, reboot: Restart, replace: Replace, refused: Refused,
			}[e]
		}
	}
}
