package factory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

const maxSchematic = 1 << 20

// statusError is an answer other than success; its text is the body, as in the public factory.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

func notFound(format string, a ...any) error {
	return &statusError{http.StatusNotFound, fmt.Sprintf(format, a...)}
}

func invalid(format string, a ...any) error {
	return &statusError{http.StatusBadRequest, fmt.Sprintf(format, a...)}
}

// Handler returns the factory's HTTP interface.
func (f *Factory) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				refuse(w, err)
			}
		})
	}

	handle("POST /schematics", f.createSchematic)
	handle("GET /image/{schematic}/{version}/{file}", f.getImage)
	handle(
		"GET /versions", func(w http.ResponseWriter, _ *http.Request) error { return answer(w, http.StatusOK, Versions()) },
	)
	handle("GET /version/{version}/extensions/official", f.getExtensions)

	return mux
}

func refuse(w http.ResponseWriter, err error) {
	status := &statusError{status: http.StatusInternalServerError, text: "internal server error"}
	errors.As(err, &status)
	http.Error(w, status.text, status.status)
}

func answer(w http.ResponseWriter, status int, body any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)

	return json.NewEncoder(w).Encode(body)
}

func (f *Factory) createSchematic(w http.ResponseWriter, r *http.Request) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSchematic))
	if err != nil {
		return invalid("%s", err)
	}

	d, err := parseSchematic(text)
	if err != nil {
		return invalid("%s", err)
	}

	id, err := f.register(d)
	if err != nil {
		return err
	}

	return answer(w, http.StatusCreated, map[string]string{"id": id})
}

func (f *Factory) getExtensions(w http.ResponseWriter, r *http.Request) error {
	version := withV(r.PathValue("version"))

	release, known := findRelease(version)
	if !known {
		return notFound("Talos version %s not found", version)
	}

	return answer(w, http.StatusOK, available(release, version))
}

func (f *Factory) getImage(w http.ResponseWriter, r *http.Request) error {
	id, version, name := r.PathValue("schematic"), withV(r.PathValue("version")), r.PathValue("file")

	file, err := parseImageFile(name)
	if err != nil {
		return invalid("error parsing profile from path: %s", err)
	}

	if err := f.check(id, version); err != nil {
		return err
	}

	body, err := file.body(version, id)
	if err != nil {
		return err
	}

	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	// The server leaves the body out of the answer to HEAD.
	_, err = w.Write(body) //nolint:gosec // an octet stream, and an attachment

	return err
}

// withV allows versions without their v, as the public factory does.
func withV(version string) string { return "v" + strings.TrimPrefix(version, "v") }
