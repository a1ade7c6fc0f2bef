// Package resources shows a machine as COSI resources, as Talos does.
package resources

// Filled sets the spec of a new resource.
func Filled[R any](r R, set func(R)) R {
	set(r)

	return r
}
