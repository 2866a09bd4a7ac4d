// Package localdeps starts the real parts that tests need: a PostgreSQL, a
// MariaDB and a DynamoDB stand-in, each on loopback, in a temporary folder,
// ended by Close and by the end of the process however it ends.
//
// StartPostgres and StartMariaDB run the servers of the machine, as an
// unprivileged user when the caller is root, without fsync. A MariaDB can be
// killed and started again. StartDynamoDB uses the service at
// DYNAMODB_ENDPOINT when that is set, for example DynamoDB Local, whose
// licence is the user's to accept; else it installs dynalite by the lockfile
// in this folder and runs it with Node. Proxy stands in front of a DynamoDB
// and loses, repeats, delays and refuses requests on command.
//
// What is missing is an error that holds the command which installs it.
package localdeps
