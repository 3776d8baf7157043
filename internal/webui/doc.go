// Package webui shows executions to people: plain pages, made on the server from
// any belay.Backend, that read and never write.
//
// What is shown was written by others: names, errors, outputs and logs may hold
// anything. Three things keep that harmless. html/template escapes every value
// where it stands; one pass over the finished page makes control characters and
// marks of direction visible instead of effective; and a Content-Security-Policy
// lets the browser load nothing but the style sheet and the icon, and run
// nothing at all. Every page is bounded, whatever the execution holds.
//
// There is no script. A page of an execution that has not ended renews itself by
// a meta element that a link turns off; the countdown to the expiry of its lease
// is an animation inside of an SVG picture.
package webui
