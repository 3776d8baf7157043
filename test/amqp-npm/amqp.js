// Talks to RabbitMQ as a program does that knows nothing of Belay. The address of RabbitMQ is the first argument.
//
//   node amqp.js URL declare QUEUE DEAD              declares a queue, and another one for its dead letters
//   node amqp.js URL publish QUEUE PREFIX N [TYPE]   sends N messages with the ids PREFIX-1 to PREFIX-N, and waits until
//                                                    RabbitMQ has confirmed all
//   node amqp.js URL count QUEUE                     prints how many messages are ready in a queue
//   node amqp.js URL consume EXCHANGE PATTERN K      binds a queue of its own to an exchange, prints "ready", and then K
//                                                    messages as JSON, one in a line
import amqp from "amqplib";

const patience = 60_000;
const [url, command, ...args] = process.argv.slice(2);

const commands = {
  async declare(connection, queue, dead) {
    const channel = await connection.createChannel();
    await channel.assertQueue(dead, { durable: true });
    await channel.assertQueue(queue, { durable: true, deadLetterExchange: "", deadLetterRoutingKey: dead });
    await channel.close();
    console.log("declared");
  },

  async publish(connection, queue, prefix, n, type = "order.paid") {
    const channel = await connection.createConfirmChannel();
    channel.on("return", (message) => {
      throw new Error(`RabbitMQ returned ${message.properties.messageId}: there is no queue ${queue}`);
    });
    for (let i = 1; i <= Number(n); i++) {
      const properties = {
        messageId: `${prefix}-${i}`, type, persistent: true, mandatory: true, contentType: "application/json",
        headers: { "x-sender": "amqplib", "x-number": i, "x-nested": { list: [1, "two"] } },
      };
      if (!channel.sendToQueue(queue, Buffer.from(JSON.stringify({ order: i, prefix })), properties)) {
        await new Promise((resolve) => channel.once("drain", resolve));
      }
    }
    await channel.waitForConfirms();
    await channel.close();
    console.log(`published ${n}`);
  },

  async count(connection, queue) {
    const channel = await connection.createChannel();
    console.log((await channel.checkQueue(queue)).messageCount);
    await channel.close();
  },

  async consume(connection, exchange, pattern, k) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue("", { exclusive: true });
    await channel.bindQueue(queue, exchange, pattern);
    let left = Number(k);
    await new Promise((resolve, reject) => {
      const receive = (message) => {
        if (message === null) return reject(new Error("RabbitMQ ended the consumption"));
        if (left === 0) return;
        const { messageId, type, contentType, headers } = message.properties;
        const { routingKey } = message.fields;
        console.log(JSON.stringify({ messageId, type, contentType, routingKey, headers, body: message.content.toString() }));
        channel.ack(message);
        if (--left === 0) resolve();
      };
      channel.consume(queue, receive).then(() => console.log("ready"), reject);
    });
    await channel.close();
  },
};

const late = setTimeout(() => {
  console.error(`${command} did not end within ${patience} ms`);
  process.exit(1);
}, patience);
const connection = await amqp.connect(url);
await commands[command](connection, ...args);
await connection.close();
clearTimeout(late);
