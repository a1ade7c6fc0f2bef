package proxmoxve

// Effect is what a change of a property does to a machine or another resource.
type Effect string

// The effects. A restart is a reboot, or a stop and a start if the machine must be off for the change.
const (
	inherited Effect = "" // that of the surrounding block; at the top: in place
	InPlace   Effect = "in place"
	Restart   Effect = "in place, with a restart"
	Replace   Effect = "replace"
	Refused   Effect = "refused"
	Ignored   Effect = "nothing"
)

// Effects returns what a change of each property of a resource type does, by path: disks[].size of a VM. Updates and
// diffs use the same table. It has only properties that the stand-in knows.
func Effects(token string) map[string]Effect {
	out := map[string]Effect{}
	if t := types()[token]; t != nil {
		t.attributes.effects("", InPlace, out)
	}

	return out
}

func (as attributes) effects(path string, outer Effect, out map[string]Effect) {
	for name, a := range as {
		at, e := join(path, name), a.effectIn(outer)

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
