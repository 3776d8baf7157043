// Package webui is the web UI: plain HTML pages about executions, workers, queues, gates, dead letters, stored
// workflows and triggers, made on the server from any belay.Backend. The pages only read from the Backend.
//
// Names, errors, outputs and logs come from other people and may contain any text. Three measures
// keep a hostile text from doing harm. html/template escapes every value for its place in the page.
// The finished page is scanned once more, and control characters and marks of text direction are
// replaced by visible characters. A Content-Security-Policy lets the browser load only the style
// sheet, the icon and the script of this server, and run no script that stands in a page. The size of
// every page is bounded.
//
// Everything can be read and done without JavaScript. The page of an execution that has not ended
// then reloads itself by a meta element, which a link turns off. With JavaScript, the script live.js
// keeps the page up to date instead: when the stream of the page tells of a change, and every few
// seconds, it reads the page again and changes what differs. The stream contains no data, so that
// only the pages themselves must escape texts. A request for a page that many scripts read at the
// same time shares its rendering with others; see press. The countdown to the end of the lease is an
// animation in an SVG picture.
package webui
