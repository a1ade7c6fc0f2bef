package datacentre

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Error is a call that Proxmox VE refuses at once.
type Error struct {
	// Status is the HTTP status PVE answers.
	Status int
	// Message is PVE's own text, which it sends as the reason phrase.
	Message string
	// Fields is the errors{} object of the body: parameter to complaint.
	Fields map[string]string
	// Bare says that the answer has no body.
	Bare bool
}

// Error returns the message, with the complaints about parameters.
func (e *Error) Error() string {
	if len(e.Fields) == 0 {
		return e.Message
	}

	fields := map[string]string{}
	for name, complaint := range e.Fields {
		fields[name] = strings.TrimRight(complaint, "\n")
	}

	return fmt.Sprintf("%s %v", e.Message, fields)
}

// ParameterError is PVE's answer to a wrong parameter.
func ParameterError(fields map[string]string) *Error {
	return &Error{Status: http.StatusBadRequest, Message: "Parameter verification failed.", Fields: fields}
}

// Forbidden is PVE's answer to a missing permission; what is its detail, such as "/vms/100, VM.Allocate", empty where
// PVE gives none.
func Forbidden(what string) *Error {
	if what != "" {
		what = " (" + what + ")"
	}

	return Answer(http.StatusForbidden, "Permission check failed%s", what)
}

// errInterrupted is how an interrupted worker ends.
var errInterrupted = errors.New("interrupted by signal")

// Refuse is what PVE answers to what it cannot do.
func Refuse(format string, a ...any) *Error {
	return Answer(http.StatusInternalServerError, format, a...)
}

// Answer is a refusal with a status.
func Answer(status int, format string, a ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, a...)}
}

// WrongParameter is a ParameterError with one complaint.
func WrongParameter(name, format string, a ...any) *Error {
	return ParameterError(map[string]string{name: fmt.Sprintf(format, a...)})
}
