package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// StatusError is a refusal in the API server's words.
type StatusError struct {
	Code            int
	Reason, Message string
}

// Error implements error.
func (e *StatusError) Error() string { return e.Message }

// NotFound refuses what concerns an object that is not there.
func NotFound(plural, name string) *StatusError {
	return &StatusError{http.StatusNotFound, "NotFound", fmt.Sprintf("%s %q not found", plural, name)}
}

// AlreadyExists refuses a second object of the same name.
func AlreadyExists(plural, name string) *StatusError {
	return &StatusError{http.StatusConflict, "AlreadyExists", fmt.Sprintf("%s %q already exists", plural, name)}
}

// BadRequest refuses what is no such object.
func BadRequest(format string, values ...any) *StatusError {
	return &StatusError{http.StatusBadRequest, "BadRequest", fmt.Sprintf(format, values...)}
}

// Invalid refuses an object whose fields contradict the rules of its kind.
func Invalid(k *Kind, name, problem string) *StatusError {
	return &StatusError{http.StatusUnprocessableEntity, "Invalid", fmt.Sprintf("%s.%s %q is invalid: %s", k.Kind, k.Group, name, problem)}
}

// write creates or replaces a stored object.
func (s *Server) write(w http.ResponseWriter, r *http.Request, target route) {
	var content map[string]any

	if err := json.NewDecoder(r.Body).Decode(&content); err != nil {
		writeError(w, BadRequest("the body of the request is no JSON object (kubectl sends one with --validate=false): %s", err))

		return
	}

	name, err := s.backend.Put(target.kind, target.namespace, content, r.Method == http.MethodPut)
	if err != nil {
		writeError(w, err)

		return
	}

	target.name = name

	s.get(w, r, target)
}

func (s *Server) remove(w http.ResponseWriter, target route) {
	if !s.backend.Delete(target.kind, target.namespace, target.name) {
		target.notFound(w)

		return
	}

	writeJSON(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Success"})
}

// log answers with what a pod's container has printed.
func (s *Server) log(w http.ResponseWriter, target route) {
	text, found := s.backend.Log(target.namespace, target.name)
	if !found {
		target.notFound(w)

		return
	}

	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte(text))
}

func writeError(w http.ResponseWriter, e *StatusError) {
	writeStatus(w, e.Code, e.Reason, e.Message)
}
