package schema

import "regexp"

// The types of parameters, by PVE's names.
const (
	Boolean = "boolean"
	Integer = "integer"
	Number  = "number"
	Array   = "array"
)

// Rule is what a parameter, or a part of a property string, must be; the names are those of PVE's description.
type Rule struct {
	Type                 string
	Enum                 []string
	Minimum, Maximum     *float64
	MinLength, MaxLength int
	// Pattern is matched against the whole value; it is in Go's notation.
	Pattern *pattern
	// Format is the name of one of PVE's formats, Properties are the parts of a property string.
	Format     string
	Properties map[string]Rule
	// Items is the rule of a list's elements.
	Items *Rule
	// Requires is the parameter without which this one means nothing.
	Requires string
	Optional bool
	// DefaultKey is of the part that may go without its key.
	DefaultKey bool `json:"default_key"`
	// Alias is the part for which this one is written, its own key being the value of the part KeyAlias: "virtio=MAC" is
	// "model=virtio,macaddr=MAC".
	Alias, KeyAlias string
}

type pattern struct{ *regexp.Regexp }

// UnmarshalText compiles the expression.
func (p *pattern) UnmarshalText(text []byte) (err error) {
	p.Regexp, err = regexp.Compile("^(?:" + string(text) + ")$")

	return err
}
