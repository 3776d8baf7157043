// Package secretref gives tasks the secrets to which their inputs refer.
//
// An input contains a reference such as ${{ secrets.API_TOKEN }}, and never the secret itself, so
// that the secret is in no store, history, log or page. The task resolves the reference where it
// runs. [Escape] makes a text with arbitrary data safe for a field in which references are resolved.
//
// # Rules
//
// The configuration of the process lists rules, one for each secret; without a rule a secret does
// not exist for tasks:
//
//		API_TOKEN for http to api.example.org
//		SLACK from file:/etc/belay/slack-url for notify,deploy to hooks.slack.com
//		DEPLOY_TOKEN from env:PROD_TOKEN for deploy to *.example.org,10.1.2.3:8080
//		GIT_TOKEN from git:https://github.com/acme/app for release to api.github.com
//
//	  - from names the source: an environment variable of the process (env:NAME; the default is the
//	    variable with the name of the secret), a file (file:PATH, absolute, not a symbolic link, closed
//	    to other users), or the password of the git credentials for a repository (git:URL).
//	  - for lists the workflows whose executions may use the secret, or * for all workflows. An HTTP
//	    request that another execution starts belongs to the workflow http and to the workflow of that
//	    execution, so either name allows it. Every document is an execution of the workflow document,
//	    whatever its own name is: a rule for document allows the secret to all documents. The name
//	    webhook:NAME stands for a webhook, and webhook for all webhooks.
//	  - to lists the hosts to which an HTTP request may send the secret, as patterns of package reach,
//	    or * for all hosts that requests may reach. Without to, a request may send the secret to no
//	    host, except that a secret may be the whole URL of the request.
//
// A name that has no rule and a name whose rule does not allow the workflow give the same error, so
// that the error does not reveal which secrets exist. No error contains a secret.
//
// # Scopes
//
// A [Scope] belongs to one run. It remembers the secrets that the run has used, and makes the
// [secret.Hider] that removes them from everything that the run saves.
package secretref
