// Package webui is the web UI: plain HTML pages about executions, workers, queues, gates, dead letters, stored
// workflows and triggers, made on the server from any belay.Backend. The pages only read from the Backend.
//
// Names, errors, outputs and logs come from other people and may contain any text. Three measures
// keep a hostile text from doing harm. html/template escapes every value for its place in the page.
// The finished page is scanned once more, and control characters and marks of text direction are
// replaced by visible characters. A Content-Security-Policy lets the browser load only the style
// sheet and the icon, and run no script. The size of every page is bounded.
//
// The pages have no script. The page of an execution that has not ended reloads itself by a meta
// element, which a link turns off. The countdown to the end of the lease is an animation in an SVG
// picture.
package webui
