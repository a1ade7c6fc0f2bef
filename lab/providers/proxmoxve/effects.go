package proxmoxve

// Effect is what a change of a property does to a machine, or to another resource.
type Effect string

// What a change can do. A restart is a reboot, or switching off and on where the machine must be off for the change.
const (
	inherited Effect = "" // as the block around it; at the top: in place
	InPlace   Effect = "in place"
	Restart   Effect = "in place, with a restart"
	Replace   Effect = "replace"
	Refused   Effect = "refused"
	Ignored   Effect = "nothing"
)

// Effects lists what a change of each property of a resource type does, by its path: disks[].size of a VM. It is the
// table that updates and plans follow. A property that the stand-in does not know is not in it.
func Effects(token string) map[string]Effect {
	out := map[string]Effect{}
	if t := types()[token]; t != nil {
		t.attributes.effects("", InPlace, out)
	}

	return out
}

func (as attributes) effects(path string, around Effect, out map[string]Effect) {
	for name, a := range as {
		at, e := join(path, name), a.within(around)

		switch {
		case a.output:
		case a.kind == block:
			if a.many {
				at += "[]"
			}

			a.fields.effects(at, e, out)
		default:
			out[at] = e
		}
	}
}
